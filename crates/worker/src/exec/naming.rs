//! What a result is called.

use dispatcher_core::id::EntryName;

/// How a result's name comes from its input's: the same, or with another extension.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResultNaming {
    extension: Option<String>,
}

/// Why an extension cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{extension}` cannot be a file's extension: write it like html or tar.gz")]
pub struct ExtensionError {
    extension: String,
}

impl ResultNaming {
    /// Results are called like their inputs.
    #[must_use]
    pub const fn same() -> Self {
        Self { extension: None }
    }

    /// Results have this extension, with or without its dot, in place of their input's last one.
    ///
    /// ```
    /// use dispatcher_core::id::EntryName;
    /// use dispatcher_worker::exec::ResultNaming;
    ///
    /// let naming = ResultNaming::extension("html")?;
    /// let name = |entry: &str| naming.result_name(&EntryName(entry.into())).to_string();
    /// assert_eq!(name("a.b/paper.tex"), "a.b/paper.html");
    /// assert_eq!(name("README"), "README.html");
    /// # Ok::<(), dispatcher_worker::exec::ExtensionError>(())
    /// ```
    ///
    /// # Errors
    /// [`ExtensionError`] where no file could have it.
    pub fn extension(extension: &str) -> Result<Self, ExtensionError> {
        let bare = extension.strip_prefix('.').unwrap_or(extension);
        let is_odd = bare.starts_with('.') || bare.ends_with('.') || bare.contains("..");
        if bare.is_empty() || is_odd || bare.contains(|c: char| c == '/' || c.is_control()) {
            return Err(ExtensionError { extension: extension.escape_debug().collect() });
        }
        Ok(Self { extension: Some(bare.to_owned()) })
    }

    /// The name of the result of `entry`, folders included. Its bytes are kept as they are.
    #[must_use]
    pub fn result_name(&self, entry: &EntryName) -> EntryName {
        let Some(extension) = &self.extension else { return entry.clone() };
        let base = entry.0.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let (folder, base) = entry.0.split_at(base);
        let (stem, _) = split_extension(base);
        EntryName([folder, stem, b".", extension.as_bytes()].concat())
    }
}

/// The two sides of the last dot of a file name; a dot at its beginning belongs to the stem.
pub(super) fn split_extension(base: &[u8]) -> (&[u8], &[u8]) {
    match base.iter().rposition(|byte| *byte == b'.') {
        Some(dot) if dot > 0 => (base.get(..dot).unwrap_or_default(), base.get(dot + 1..).unwrap_or_default()),
        _ => (base, b""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_extension_of_the_last_piece_is_replaced() {
        let naming = ResultNaming::extension(".html").unwrap();
        for (entry, result) in [
            (&b"a.tex"[..], &b"a.html"[..]),
            (b"x.d/a", b"x.d/a.html"),
            (b"x/.hidden", b"x/.hidden.html"),
            (b"a.tar.gz", b"a.tar.html"),
            (b"caf\xe9.t\xe9x", b"caf\xe9.html"),
            (b"dot.", b"dot.html"),
        ] {
            assert_eq!(naming.result_name(&EntryName(entry.to_vec())).0, result);
            assert_eq!(ResultNaming::same().result_name(&EntryName(entry.to_vec())).0, entry);
        }
        assert!(ResultNaming::extension("a/b").unwrap_err().to_string().contains("cannot be"));
        assert!(ResultNaming::extension(".").is_err());
    }
}
