//! Names of result files outside the archive: in a folder, or as members of a tar file that is unpacked into one.
//!
//! Owns that every name leads to a file below that folder and nowhere else, whatever an entry, a corpus or a service is
//! called, that no two names become one, and that a name which can be a file's stays as it is.

use dispatcher_core::id::EntryName;

/// The longest component of a path that file systems take, in bytes.
const LONGEST: usize = 255;

/// As long as a piece of a longer one becomes, with room for what marks that it goes on.
const PIECE: usize = 240;

/// How a component begins that is written otherwise.
const OURS: &[u8] = b"%=";

/// The name of the file for `name`. A component that can be a file's name stays as it is. One that cannot begins with `%=`;
/// in it `%2E` is a byte, and `%+` at its end means that it goes on in the next one. A component that begins with `%=` by
/// itself is written so, too.
///
/// ```
/// use dispatcher_core::id::EntryName;
/// use dispatcher_store::archive::outside::file_name;
/// let name = |bytes: &[u8]| file_name(&EntryName(bytes.to_vec())).0;
/// assert_eq!(name(b"html/papers/50%25.tex"), b"html/papers/50%25.tex");
/// assert_eq!(name(b"html/papers/../50%.tex"), b"html/papers/%=%2E%2E/50%.tex");
/// assert_eq!(name(b"/etc/passwd"), b"%=/etc/passwd");
/// ```
#[must_use]
pub fn file_name(name: &EntryName) -> EntryName {
    let mut path = Vec::with_capacity(name.0.len());
    for (n, component) in name.0.split(|byte| *byte == b'/').enumerate() {
        if n > 0 {
            path.push(b'/');
        }
        if can_be_a_files(component) { path.extend_from_slice(component) } else { push_ours(component, &mut path) }
    }
    EntryName(path)
}

fn can_be_a_files(component: &[u8]) -> bool {
    let is_name = !matches!(component, b"" | b"." | b"..") && !component.contains(&0);
    is_name && component.len() <= LONGEST && !component.starts_with(OURS)
}

fn push_ours(component: &[u8], path: &mut Vec<u8>) {
    path.extend_from_slice(OURS);
    let mut length = OURS.len();
    for byte in component {
        // A piece of a long one could be dots alone, or end like one that goes on.
        let written = if matches!(byte, b'.' | b'%' | 0) { format!("%{byte:02X}").into_bytes() } else { vec![*byte] };
        if length + written.len() > PIECE {
            path.extend_from_slice(b"%+/");
            length = 0;
        }
        length += written.len();
        path.extend(written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::files::check_relative;
    use proptest::prelude::*;

    /// The name that [`file_name`] wrote so.
    fn read(path: &[u8]) -> Vec<u8> {
        let mut components: Vec<Vec<u8>> = Vec::new();
        let mut goes_on = false;
        for component in path.split(|byte| *byte == b'/') {
            let (is_ours, rest) = match component.strip_prefix(OURS) {
                _ if goes_on => (true, component),
                Some(rest) => (true, rest),
                None => (false, component),
            };
            let piece = if is_ours { rest.strip_suffix(b"%+").unwrap_or(rest) } else { rest };
            let bytes = if is_ours { unescaped(piece) } else { piece.to_vec() };
            match components.last_mut() {
                Some(last) if goes_on => last.extend(bytes),
                _ => components.push(bytes),
            }
            goes_on = is_ours && piece.len() < rest.len();
        }
        components.join(&b'/')
    }

    fn unescaped(mut rest: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let [first, behind @ ..] = rest {
            let is_escape = *first == b'%';
            let digits = || std::str::from_utf8(&behind[..2]).unwrap();
            bytes.push(if is_escape { u8::from_str_radix(digits(), 16).unwrap() } else { *first });
            rest = if is_escape { &behind[2..] } else { behind };
        }
        bytes
    }

    fn any_name() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(b"%".to_vec()),
            Just(b"%=".to_vec()),
            Just(b"%+".to_vec()),
            Just(b"25".to_vec()),
            Just(b".".to_vec()),
            Just(b"..".to_vec()),
            Just(b"/".to_vec()),
            Just(vec![0]),
            Just(vec![b'x'; 260]),
            Just(vec![b'%'; 130]),
            proptest::collection::vec(any::<u8>(), 0..4),
        ];
        proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        // Rule G8: no result takes the place of another.
        #[test]
        fn every_name_becomes_one_of_a_file_below_the_folder_and_can_be_read_back(name in any_name()) {
            let file = file_name(&EntryName(name.clone()));
            prop_assert_eq!(read(&file.0), name.clone());
            let fits = check_relative(&file);
            prop_assert!(fits.is_ok() || file.0.len() > 3000, "{}: {:?}", file, fits);
            let is_ours = name.split(|byte| *byte == b'/').any(|component| component.starts_with(OURS));
            if check_relative(&EntryName(name.clone())).is_ok() && !is_ours {
                prop_assert_eq!(file.0, name);
            }
        }
    }
}
