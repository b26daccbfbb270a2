//! Who said what: each setting that is in force, with its value and the layer that it comes from.

use super::{PREFIX, Settings};
use anyhow::Context;
use figment::value::{Tag, Value};
use figment::{Figment, Metadata, Source as Layer};
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;

/// A setting in force.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Said {
    /// Its name; of a service's, `services.NAME.SETTING`.
    pub name: String,
    /// Its value, as it might stand in the file.
    pub value: serde_json::Value,
    /// Who said so.
    pub source: Source,
}

/// Who said it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", content = "of", rename_all = "snake_case")]
pub enum Source {
    /// Nobody.
    Default,
    /// This file.
    File(PathBuf),
    /// This variable.
    Environment(String),
    /// This flag.
    Flag(String),
    /// The state folder, which keeps what its first start had: this file of it.
    State(PathBuf),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) | Self::State(path) => write!(f, "{}", path.display()),
            Self::Environment(name) | Self::Flag(name) => f.write_str(name),
        }
    }
}

impl Said {
    /// Whether somebody said so.
    pub fn is_said(&self) -> bool {
        self.source != Source::Default
    }
}

impl Settings {
    /// Every setting with its source; `layers` are those that it was read from.
    pub fn said_by(&self, layers: &Figment) -> anyhow::Result<Vec<Said>> {
        let values = serde_json::to_value(self)?;
        let values = values.as_object().context("settings are not an object")?;
        let mut said = Vec::new();
        for (name, value) in values.iter().filter(|(name, _)| *name != "services") {
            let tag = layers.find_value(name).ok().map(|value| value.tag());
            said.push(Said { name: name.clone(), value: value.clone(), source: source(layers, tag, name) });
        }
        // Not by a path of names: a service's own name may have dots.
        let in_layers = layers.find_value("services").ok();
        for (service, settings) in values.get("services").and_then(|s| s.as_object()).into_iter().flatten() {
            let in_layers = in_layers.as_ref().and_then(|value| member(value, service));
            for (name, value) in settings.as_object().into_iter().flatten() {
                let tag = in_layers.and_then(|value| member(value, name)).map(Value::tag);
                let source = source(layers, tag, name);
                said.push(Said { name: format!("services.{service}.{name}"), value: value.clone(), source });
            }
        }
        Ok(said)
    }
}

/// Whether somebody said this setting: a file, a variable or a flag.
#[must_use]
pub fn is_said(layers: &Figment, name: &str) -> bool {
    source(layers, layers.find_value(name).ok().map(|value| value.tag()), name) != Source::Default
}

fn member<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    value.as_dict()?.get(name)
}

fn source(layers: &Figment, tag: Option<Tag>, name: &str) -> Source {
    source_of(tag.and_then(|tag| layers.get_metadata(tag)), name)
}

/// Who the layer is that says a setting of this name.
pub(super) fn source_of(layer: Option<&Metadata>, name: &str) -> Source {
    let Some(layer) = layer else { return Source::Default };
    match &layer.source {
        Some(Layer::File(path)) => Source::File(path.clone()),
        Some(_) if layer.name == std::any::type_name::<Settings>() => Source::Default,
        Some(_) => Source::Flag(format!("--{}", name.replace('_', "-"))),
        None => Source::Environment(format!("{PREFIX}{}", name.to_uppercase())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FILE, layers};
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn each_setting_says_who_set_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        std::fs::write(&file, "beat = \"1s\"\n[services.\"a.b\"]\nlimit = \"10m\"\n").unwrap();
        let layers = layers(folder.path(), None, BTreeMap::from([("dead_after", "20s")])).unwrap();
        let said = Settings::of(&layers).unwrap().said_by(&layers).unwrap();
        let of = |name: &str| said.iter().find(|said| said.name == name).unwrap();
        let file = file.canonicalize().unwrap();
        assert_eq!((of("beat").value.clone(), of("beat").source.clone()), ("1s".into(), Source::File(file.clone())));
        assert_eq!(of("dead_after").source, Source::Flag("--dead-after".into()));
        assert_eq!(of("drain_limit").source, Source::Default);
        assert_eq!(
            (of("services.a.b.limit").value.clone(), &of("services.a.b.limit").source),
            ("10m".into(), &Source::File(file))
        );
        let mut names: Vec<_> = said.iter().map(|said| said.name.as_str()).filter(|name| !name.contains('.')).collect();
        names.sort_unstable();
        assert_eq!(names, Settings::names(), "all are there, each once");
    }
}
