//! A setting that cannot be read, in words: what a person wrote, where, and how to write it.
//!
//! Owns the way from what the layers complain of to the flag, the variable or the key of the file that said it.

use super::said::{Source, source_of};
use crate::exit::Exit;
use figment::Figment;
use figment::error::{Error, Kind};
use figment::value::Value;

/// What is wrong with the layers.
pub(super) fn wrong(layers: &Figment, error: Error) -> anyhow::Error {
    let said: Vec<String> = error.into_iter().map(|error| one(layers, &error)).collect();
    Exit::usage(format!("{}; `dispatcher config` lists the settings", said.join("; ")))
}

/// Who says a setting, as a person knows it: the flag, the variable, or the key and its file.
pub(super) fn who(layers: &Figment, name: &str) -> String {
    let tag = layers.find_value(name).ok().map(|value| value.tag());
    named(&source_of(tag.and_then(|tag| layers.get_metadata(tag)), name), name)
}

fn named(source: &Source, name: &str) -> String {
    match source {
        Source::File(path) => format!("`{name}` in {}", path.display()),
        Source::Environment(said) | Source::Flag(said) => said.clone(),
        Source::Default | Source::State(_) => name.to_owned(),
    }
}

fn one(layers: &Figment, error: &Error) -> String {
    let source = |name: &str| source_of(error.metadata.as_ref(), name);
    if let Kind::UnknownField(name, _) = &error.kind {
        return format!("there is no setting {}", named(&source(name), name));
    }
    let Some(last) = error.path.last() else {
        let file = error.metadata.as_ref().and_then(|layer| layer.source.as_ref()?.file_path());
        return file.map_or_else(|| error.kind.to_string(), |file| format!("{}: {}", file.display(), error.kind));
    };
    let (source, path) = (source(last), error.path.join("."));
    let is_file = matches!(source, Source::File(_));
    let value = value_at(layers, &error.path).map_or_else(String::new, |value| format!(" is {}", shown(&value)));
    format!("{}{value}: {}", named(&source, &path), how(last, is_file).unwrap_or_else(|| error.kind.to_string()))
}

/// The value that the path leads to; a service's own name may have dots.
fn value_at(layers: &Figment, path: &[String]) -> Option<Value> {
    let (first, rest) = path.split_first()?;
    let value = layers.find_value(first).ok()?;
    rest.iter().try_fold(value, |value, name| value.as_dict()?.get(name).cloned())
}

fn shown(value: &Value) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "something else".to_owned())
}

/// How a setting is written; `None` where the complaint says so itself.
fn how(name: &str, in_file: bool) -> Option<String> {
    let like = |examples: [&str; 2]| {
        let quote = if in_file { "\"" } else { "" };
        Some(format!("write it like {quote}{}{quote} or {quote}{}{quote}", examples[0], examples[1]))
    };
    match name {
        "beat" | "dead_after" | "drain_limit" | "keep_alive" | "kill_grace" | "late_window" | "limit"
        | "retry_delay" | "store_patience" => like(["5s", "10m"]),
        "legacy_max" | "pack_size" | "result_cap" => like(["500MB", "4GiB"]),
        "budget" | "claim_ahead" | "hard_limit" | "legacy_window" | "max_in_flight" => {
            Some("write a whole number, like 5".to_owned())
        }
        "fast_commits" => Some("write true or false".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FILE, Settings, layers};
    use std::collections::BTreeMap;

    fn told(file: &str, flags: &[(&str, &str)]) -> (String, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join(FILE);
        std::fs::write(&path, file).unwrap();
        let flags: BTreeMap<_, _> = flags.iter().copied().collect();
        let layers = layers(folder.path(), None, flags).unwrap();
        (Settings::of(&layers).unwrap_err().to_string(), path.display().to_string())
    }

    #[test]
    fn a_value_that_cannot_be_read_is_told_with_who_said_it_and_how_to_write_it() {
        let flag = |name, value, says: &str| {
            let (told, _) = told("", &[(name, value)]);
            assert!(told.starts_with(says), "{told}");
            assert!(!told.contains("default.") && !told.contains(".rs"), "{told}");
        };
        flag("pack_size", "1ZB", "--pack-size is \"1ZB\": write it like 500MB or 4GiB;");
        flag("drain_limit", "x", "--drain-limit is \"x\": write it like 5s or 10m;");
        flag("results", "tcp://127.0.0.1:51696", "--results is \"tcp://127.0.0.1:51696\": ");
        let file = |line, says: &str| {
            let (told, path) = told(line, &[]);
            assert!(told.starts_with(&says.replace("FILE", &path)), "{told}");
        };
        file("drain_limit = 5", "`drain_limit` in FILE is 5: write it like \"5s\" or \"10m\";");
        file("pack_size = \"x\"", "`pack_size` in FILE is \"x\": write it like \"500MB\" or \"4GiB\";");
        file("[services.\"a.b\"]\nlimit = 5", "`services.a.b.limit` in FILE is 5: write it like \"5s\" or \"10m\";");
        file("archive = \"pack\"", "`archive` in FILE is \"pack\": ");
        file("beat = ", "FILE: TOML parse error at line 1");
        file("lisen = 1", "there is no setting `lisen` in FILE;");
    }
}
