//! What a server can be told, and from where: defaults, then a TOML file, then `DISPATCHER_*` variables, then flags.
//!
//! Owns the names, their defaults and what they mean; `dispatcher config` shows what is in force and which of the four
//! said so. Knows nothing of how a setting is obeyed.

mod in_force;
mod said;
mod written;
mod wrong;

pub use in_force::{in_force, note};
pub use said::{Said, Source, is_said};
pub use written::exact_size;

use written::{maybe_size, maybe_span, size, span};

use crate::exit::Exit;
use dispatcher_core::fleet::FleetLimits;
use dispatcher_core::in_flight::Limits;
use dispatcher_core::legacy::LegacyLimits;
use dispatcher_core::time::SpanMs;
use dispatcher_server::LegacyWire;
use dispatcher_store::ServiceChange;
use dispatcher_transport::socket::BackendKind;
use figment::Figment;
use figment::providers::{Env, Format, Serialized, Toml};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file's name in the state folder.
pub const FILE: &str = "dispatcher.toml";

/// Where workers connect unless something else is said: the port that existing workers know.
pub const LISTEN: &str = "tcp://127.0.0.1:51695";

/// Where results of existing workers come unless something else is said: the port that they know.
const LEGACY_RESULTS: &str = "tcp://127.0.0.1:51696";

/// Tasks that may be claimed ahead: more would only wait in memory.
const CLAIM_AHEAD_MAX: usize = 100_000;

/// What the variables are called: this, and a setting's name in capitals.
const PREFIX: &str = "DISPATCHER_";

/// Everything that `serve` can be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Where workers connect: `tcp://127.0.0.1:PORT` or `ipc:///path/in/a/folder/of/yours`.
    pub listen: String,
    /// Which implementation of the sockets: `omq`, or `zeromq` on this machine only.
    pub backend: BackendKind,
    /// Where results of existing CorTeX workers come: an endpoint, `off`, or `auto`: port 51696 where `listen` is the
    /// default, and nowhere else.
    pub legacy_results: String,
    /// Open tasks of one such connection.
    pub legacy_window: usize,
    /// The largest input and result of such a worker, which travels in one message.
    #[serde(serialize_with = "size::serialize")]
    pub legacy_max: bytesize::ByteSize,
    /// After how much silence the system asks whether a peer is still there; `0s`: as the system has it.
    #[serde(with = "span")]
    pub keep_alive: Duration,
    /// Where health, readiness and metrics are shown: an address and port on this machine, or `off`.
    pub http: String,
    /// What becomes of results: `packs`, `files`, or `none` where workers put them away themselves.
    pub archive: ArchiveKind,
    /// Where result files go; relative to the folder that the state folder lies in.
    pub results: PathBuf,
    /// How result files are named: `mirror` or `cortex`.
    pub layout: LayoutKind,
    /// From this size on a pack is closed and another begun.
    #[serde(serialize_with = "size::serialize")]
    pub pack_size: bytesize::ByteSize,
    /// No task is leased while so many are in flight.
    pub max_in_flight: usize,
    /// So many may be in flight through what cannot be refused.
    pub hard_limit: usize,
    /// For how long a task is remembered for a late result.
    #[serde(with = "span")]
    pub late_window: Duration,
    /// Claimed tasks held ready for the workers of each service.
    pub claim_ahead: usize,
    /// How often each side gives a sign of life.
    #[serde(with = "span")]
    pub beat: Duration,
    /// After how much silence a worker counts as lost.
    #[serde(with = "span")]
    pub dead_after: Duration,
    /// What a worker may take from the end of a task's time limit to the end of its processes.
    #[serde(with = "span")]
    pub kill_grace: Duration,
    /// How long a drain may take.
    #[serde(with = "span")]
    pub drain_limit: Duration,
    /// How long a lost store is waited for.
    #[serde(with = "span")]
    pub store_patience: Duration,
    /// Survive kills of the process, but not for sure a power cut.
    pub fast_commits: bool,
    /// How log lines look: `text` or `json`.
    pub log: LogForm,
    /// Services to make or change at the start.
    pub services: BTreeMap<String, ServiceInFile>,
}

/// What becomes of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum ArchiveKind {
    /// Together in tar files below the state folder, from where `dispatcher export` takes them.
    #[default]
    Packs,
    /// A file for each, below the results folder.
    Files,
    /// Only size and checksum are recorded.
    None,
}

/// How result files are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LayoutKind {
    /// SERVICE/CORPUS/INPUT.
    #[default]
    Mirror,
    /// CORPUS/FOLDER/SERVICE.zip for the input FOLDER/NAME.zip.
    Cortex,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LogForm {
    /// For people.
    #[default]
    Text,
    /// An object a line.
    Json,
}

/// A service in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceInFile {
    /// The time limit of a first attempt, like `10m`.
    #[serde(with = "maybe_span", skip_serializing_if = "Option::is_none")]
    pub limit: Option<Duration>,
    /// Charged attempts that one run may spend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<u32>,
    /// The largest result, like `4GB`.
    #[serde(serialize_with = "maybe_size::serialize", skip_serializing_if = "Option::is_none")]
    pub result_cap: Option<bytesize::ByteSize>,
    /// The first delay before a retry.
    #[serde(with = "maybe_span", skip_serializing_if = "Option::is_none")]
    pub retry_delay: Option<Duration>,
    /// How many of its tasks may be in flight at once; 0: as many as the process may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u32>,
    /// Services with a higher one are claimed for first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
}

impl Default for Settings {
    fn default() -> Self {
        let (limits, fleet) = (Limits::default(), FleetLimits::default());
        let of = |span: SpanMs| Duration::from_millis(span.0);
        Self {
            listen: LISTEN.to_owned(),
            backend: BackendKind::default(),
            legacy_results: "auto".to_owned(),
            legacy_window: LegacyLimits::default().window,
            legacy_max: bytesize::ByteSize::mib(40),
            keep_alive: Duration::ZERO,
            http: "127.0.0.1:51697".to_owned(),
            archive: ArchiveKind::default(),
            results: PathBuf::from("results"),
            layout: LayoutKind::default(),
            pack_size: bytesize::ByteSize::gib(1),
            max_in_flight: limits.max_in_flight,
            hard_limit: limits.hard_limit,
            late_window: Duration::from_millis(limits.window_ms.unsigned_abs()),
            claim_ahead: 1024,
            beat: of(fleet.beat),
            dead_after: of(fleet.dead_after),
            kill_grace: Duration::from_secs(5),
            drain_limit: Duration::from_secs(30),
            store_patience: Duration::from_secs(300),
            fast_commits: false,
            log: LogForm::Text,
            services: BTreeMap::new(),
        }
    }
}

/// The layers, lowest first. `flags` has what the command line said, and nothing else.
pub fn layers(state: &Path, file: Option<&Path>, flags: impl Serialize) -> anyhow::Result<Figment> {
    let file = match file {
        Some(named) if !named.is_file() => {
            return Err(Exit::usage(format!("there is no file {}: name another with --config", named.display())));
        }
        Some(named) => named.to_owned(),
        None => state.join(FILE),
    };
    let names = Settings::names();
    let defaults = Figment::from(Serialized::defaults(Settings::default()));
    // A file that is not there says nothing; one that cannot be read is an error.
    let filed = if file.exists() { defaults.merge(Toml::file_exact(file)) } else { defaults };
    Ok(filed
        .merge(Env::prefixed(PREFIX).filter(move |key| names.iter().any(|name| key == name.as_str())))
        .merge(Serialized::defaults(flags)))
}

impl Settings {
    /// What is in force.
    pub fn of(layers: &Figment) -> anyhow::Result<Self> {
        let settings: Self = layers.extract().map_err(|e| wrong::wrong(layers, e))?;
        settings.check()?;
        if settings.results.as_os_str().as_encoded_bytes().windows(3).any(|part| part == b"://") {
            return Err(Exit::usage(format!(
                "{} is {:?}: write the folder where result files go; where CorTeX workers send theirs is legacy_results",
                wrong::who(layers, "results"),
                settings.results
            )));
        }
        Ok(settings)
    }

    /// The names of all settings but the services.
    pub fn names() -> Vec<String> {
        let value = serde_json::to_value(Self::default()).unwrap_or_default();
        let names = value.as_object().into_iter().flat_map(|object| object.keys().cloned());
        names.filter(|name| name != "services").collect()
    }

    fn check(&self) -> anyhow::Result<()> {
        self.limits().check().map_err(|e| Exit::usage(e.to_string()))?;
        if self.beat.is_zero() || self.dead_after < self.beat * 2 {
            return Err(Exit::usage("dead_after must be at least twice beat, and beat more than nothing"));
        }
        if !(1..=CLAIM_AHEAD_MAX).contains(&self.claim_ahead) {
            return Err(Exit::usage(format!("claim_ahead must be from 1 to {CLAIM_AHEAD_MAX}")));
        }
        if self.legacy_window == 0 || self.legacy_max.as_u64() == 0 {
            return Err(Exit::usage(
                "legacy_window and legacy_max must be more than nothing; legacy_results = \"off\" serves no such workers",
            ));
        }
        if self.pack_size.as_u64() == 0 {
            return Err(Exit::usage("pack_size must be more than nothing"));
        }
        for (name, service) in &self.services {
            let nothing = service.limit == Some(Duration::ZERO)
                || service.budget == Some(0)
                || service.result_cap.is_some_and(|cap| cap.as_u64() == 0);
            if nothing {
                return Err(Exit::usage(format!(
                    "the limit, budget and result_cap of the service {name:?} must be more than nothing"
                )));
            }
        }
        Ok(())
    }

    /// Bounds of the leases in memory.
    pub fn limits(&self) -> Limits {
        Limits {
            max_in_flight: self.max_in_flight,
            hard_limit: self.hard_limit,
            window_ms: i64::try_from(self.late_window.as_millis()).unwrap_or(i64::MAX),
            ..Limits::default()
        }
    }

    /// Bounds of the workers' connections.
    pub fn fleet(&self) -> FleetLimits {
        let dead_after = millis(self.dead_after);
        FleetLimits { beat: millis(self.beat), dead_after, stuck_after: dead_after, ..FleetLimits::default() }
    }

    /// Bounds of the workers of the legacy wire.
    pub fn legacy_limits(&self) -> LegacyLimits {
        let largest = self.legacy_max.as_u64();
        LegacyLimits {
            window: self.legacy_window,
            unread_each: largest,
            unread_all: largest.saturating_mul(4),
            ..LegacyLimits::default()
        }
    }

    /// The legacy wire.
    pub fn legacy(&self) -> anyhow::Result<LegacyWire> {
        let results = match self.legacy_results.as_str() {
            "off" => None,
            "auto" if self.listen == LISTEN => Some(LEGACY_RESULTS.to_owned()),
            "auto" => None,
            named => Some(named.to_owned()),
        };
        let results = results.map(|place| {
            place.parse().map_err(|e| {
                let how = format!("write it like {LEGACY_RESULTS}, auto, or off");
                Exit::usage(format!("legacy_results is {place:?}: {e}; {how}"))
            })
        });
        Ok(LegacyWire {
            results: results.transpose()?,
            max_result: usize::try_from(self.legacy_max.as_u64()).ok(),
            limits: self.legacy_limits(),
            keep_alive: (!self.keep_alive.is_zero()).then_some(self.keep_alive),
        })
    }

    /// Where the pages are shown, if anywhere.
    pub fn http(&self) -> anyhow::Result<Option<SocketAddr>> {
        if self.http == "off" {
            return Ok(None);
        }
        let address: SocketAddr = self.http.parse().map_err(|_| {
            Exit::usage(format!("http is {:?}: write an address and a port like 127.0.0.1:51697, or off", self.http))
        })?;
        if !address.ip().is_loopback() {
            return Err(Exit::usage(format!(
                "http is {address}: the pages have no password, so they are shown on this machine only (127.0.0.1 or [::1])"
            )));
        }
        Ok(Some(address))
    }
}

impl ServiceInFile {
    /// As a change of a service's settings.
    pub fn change(&self) -> ServiceChange {
        ServiceChange {
            timeout_ms: self.limit.map(millis),
            budget: self.budget,
            result_cap: self.result_cap.map(|size| size.as_u64()),
            retry_delay_ms: self.retry_delay.map(millis),
            max_in_flight: self.max_in_flight,
            priority: self.priority,
        }
    }
}

/// Who says a setting, as a person knows it: the flag, the variable, or the key and its file.
pub fn who(layers: &Figment, name: &str) -> String {
    wrong::who(layers, name)
}

/// A span in whole milliseconds.
pub fn millis(duration: Duration) -> SpanMs {
    SpanMs(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule L10.
    #[test]
    fn a_hard_limit_that_is_not_above_the_other_is_told_when_the_settings_are_read() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), "max_in_flight = 50\nhard_limit = 50\n").unwrap();
        let layers = layers(folder.path(), None, BTreeMap::<String, String>::new()).unwrap();
        let told = Settings::of(&layers).unwrap_err().to_string();
        assert!(told.contains("does not lie above"), "{told}");
    }

    #[test]
    fn a_flag_beats_the_file_and_the_file_beats_the_default() {
        let folder = tempfile::tempdir().unwrap();
        let file = "dead_after = \"9s\"\nbeat = \"1s\"\n[services.html]\nlimit = \"10m\"\nbudget = 2\n";
        std::fs::write(folder.path().join(FILE), file).unwrap();
        let layers = layers(folder.path(), None, BTreeMap::from([("dead_after", "20s")])).unwrap();
        let settings = Settings::of(&layers).unwrap();
        assert_eq!((settings.dead_after, settings.beat), (Duration::from_secs(20), Duration::from_secs(1)));
        assert_eq!(settings.drain_limit, Duration::from_secs(30));
        assert_eq!(settings.services["html"].limit, Some(Duration::from_secs(600)));
    }

    #[test]
    fn without_a_file_the_defaults_hold() {
        let folder = tempfile::tempdir().unwrap();
        let layers = layers(folder.path(), None, BTreeMap::<String, String>::new()).unwrap();
        assert_eq!(Settings::of(&layers).unwrap(), Settings::default());
    }

    #[test]
    fn a_setting_that_there_is_not_is_an_error_and_not_a_guess() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), "lisen = \"tcp://127.0.0.1:1\"\n").unwrap();
        let layers = layers(folder.path(), None, BTreeMap::<String, String>::new()).unwrap();
        assert!(Settings::of(&layers).unwrap_err().to_string().contains("lisen"));
    }

    #[test]
    fn a_service_that_could_do_nothing_is_refused_wherever_it_is_written() {
        for line in ["budget = 0", "limit = \"0s\"", "result_cap = \"0B\""] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(FILE), format!("[services.html]\n{line}\n")).unwrap();
            let layers = layers(folder.path(), None, BTreeMap::<String, String>::new()).unwrap();
            assert!(Settings::of(&layers).unwrap_err().to_string().contains("more than nothing"), "{line}");
        }
    }

    #[test]
    fn the_file_in_the_documents_is_one_that_can_be_read_and_the_settings_without_a_flag_are_all_listed() {
        let page = include_str!("../../../docs/operations.md");
        let (_, rest) = page.split_once("```toml\n").unwrap();
        let (file, _) = rest.split_once("```").unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), file).unwrap();
        let layers = layers(folder.path(), None, BTreeMap::<String, String>::new()).unwrap();
        assert_eq!(Settings::of(&layers).unwrap().services["html"].retry_delay, Some(Duration::from_secs(30)));

        let serve = <crate::serve::ServeFlags as clap::Args>::augment_args(clap::Command::new("serve"));
        let flags: Vec<&str> = serve.get_arguments().filter_map(clap::Arg::get_long).collect();
        let (before, _) = page.split_once("and the services have no flag").unwrap();
        let listed = &before[before.rfind("is an error").unwrap()..];
        for name in Settings::names() {
            let has_flag = flags.contains(&name.replace('_', "-").as_str());
            assert_ne!(has_flag, listed.contains(&format!("`{name}`")), "{name}");
        }
    }

    // Rules W3, W6.
    #[test]
    fn existing_workers_find_the_two_ports_that_they_know_unless_something_else_is_said() {
        let of = |settings: Settings| settings.legacy().map(|legacy| legacy.results.map(|place| place.to_string()));
        let defaults = Settings::default();
        assert_eq!(defaults.listen, "tcp://127.0.0.1:51695");
        assert_eq!(of(defaults.clone()).unwrap().as_deref(), Some("tcp://127.0.0.1:51696"));
        let elsewhere = Settings { listen: "tcp://127.0.0.1:6000".to_owned(), ..defaults.clone() };
        assert_eq!(of(elsewhere.clone()).unwrap(), None);
        let said = |place: &str| Settings { legacy_results: place.to_owned(), ..elsewhere.clone() };
        assert_eq!(of(said("tcp://127.0.0.1:6001")).unwrap().as_deref(), Some("tcp://127.0.0.1:6001"));
        assert_eq!(of(Settings { legacy_results: "off".to_owned(), ..defaults.clone() }).unwrap(), None);
        assert!(of(said("port 5")).is_err());
        assert_eq!(defaults.legacy().unwrap().keep_alive, None, "the system's own");
        let idle = Duration::from_secs(60);
        assert_eq!(Settings { keep_alive: idle, ..defaults }.legacy().unwrap().keep_alive, Some(idle));
    }

    #[test]
    fn pages_without_a_password_are_shown_on_this_machine_only() {
        let at = |http: &str| Settings { http: http.to_owned(), ..Settings::default() }.http();
        assert!(at("127.0.0.1:0").unwrap().is_some() && at("off").unwrap().is_none());
        assert!(at("0.0.0.0:80").is_err() && at("here").is_err());
    }
}
