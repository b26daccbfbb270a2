//! What is measured, for Prometheus.
//!
//! Owns the names of the metrics and the handles that stages record into; `docs/operations.md` lists them. Knows no HTTP.
//! A dispatcher has its own recorder, so that two of them in one process do not mix.

use crate::progress::Progress;
use crate::shared::Shared;
use dispatcher_core::in_flight::InFlightSet;
use dispatcher_store::{BookLine, Service, Summary};
use metrics::{Histogram, Key, Label, Level, Metadata, Recorder, SharedString, Unit};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Upper bounds of the buckets of times, in seconds: fine where commits are, coarse where things go wrong.
const TIMES: [f64; 22] = [
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0,
    2.0, 5.0, 10.0, 30.0,
];
/// Upper bounds of the buckets of batch sizes, in records.
const SIZES: [f64; 11] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

const METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// Where stages record.
pub struct Meters {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    /// From a result's last byte to its commit.
    pub durable: Histogram,
    /// Staging and syncing the bytes of a batch.
    pub sync: Histogram,
    /// The transaction of a batch.
    pub commit: Histogram,
    /// Telling memory, archive and router what a batch has decided.
    pub apply: Histogram,
    /// Claiming.
    pub claim: Histogram,
    /// Publishing one result.
    pub publish: Histogram,
    /// One piece of a command.
    pub command: Histogram,
    /// One turn of the router.
    pub route: Histogram,
    /// Records in a batch.
    pub batch: Histogram,
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meters").finish_non_exhaustive()
    }
}

/// How a dispatcher is at one moment, for its gauges.
#[derive(Debug)]
pub struct Picture<'a> {
    /// The leases.
    pub set: &'a InFlightSet,
    /// What the stages share.
    pub shared: &'a Shared,
    /// What people see.
    pub progress: &'a Progress,
    /// Every service.
    pub services: &'a [Service],
    /// Tasks by state and status.
    pub tasks: &'a Summary,
    /// The books.
    pub books: &'a [BookLine],
    /// Whether the store answered.
    pub store_up: bool,
}

impl Default for Meters {
    fn default() -> Self {
        let builder = PrometheusBuilder::new();
        let sized = metrics_exporter_prometheus::Matcher::Full("dispatcher_batch_records".to_owned());
        // The bounds are constants and not empty, which is all that could be refused.
        let builder = builder.set_buckets(&TIMES).unwrap_or_else(|_| PrometheusBuilder::new());
        let builder = builder.set_buckets_for_metric(sized, &SIZES).unwrap_or_else(|_| PrometheusBuilder::new());
        let recorder = builder.build_recorder();
        let stage = |name: &'static str| {
            let key = Key::from_parts("dispatcher_stage_seconds", vec![Label::new("stage", name)]);
            recorder.register_histogram(&key, &METADATA)
        };
        let plain = |name: &'static str| recorder.register_histogram(&Key::from_name(name), &METADATA);
        describe(&recorder);
        Self {
            durable: plain("dispatcher_durable_seconds"),
            sync: stage("sync"),
            commit: stage("commit"),
            apply: stage("apply"),
            claim: stage("claim"),
            publish: stage("publish"),
            command: stage("command"),
            route: stage("route"),
            batch: plain("dispatcher_batch_records"),
            handle: recorder.handle(),
            recorder,
        }
    }
}

impl Meters {
    /// Runs `work` and records how long it took.
    pub fn timed<T>(histogram: &Histogram, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = work();
        histogram.record(began.elapsed());
        done
    }

    /// Everything in the text format of Prometheus.
    #[must_use]
    pub fn render(&self, picture: &Picture<'_>) -> String {
        self.take(picture);
        self.handle.run_upkeep();
        self.handle.render()
    }

    /// Sets gauges and counters to what the picture shows.
    #[expect(clippy::cast_precision_loss, reason = "counts of tasks are far below 2^52")]
    fn take(&self, picture: &Picture<'_>) {
        let counts = picture.set.counts();
        let progress = picture.progress.now();
        self.gauge("dispatcher_in_flight", vec![], counts.in_flight as f64);
        self.gauge("dispatcher_answered", vec![], counts.answered as f64);
        self.gauge("dispatcher_held", vec![], counts.held as f64);
        for service in picture.services {
            let label = || vec![Label::new("service", service.name.clone())];
            self.gauge("dispatcher_stock", label(), picture.shared.stock.of(service.id) as f64);
            self.gauge("dispatcher_service_in_flight", label(), picture.set.in_flight_of(service.id) as f64);
            self.gauge("dispatcher_service_paused", label(), f64::from(u8::from(service.settings.paused)));
        }
        for (state, n) in &picture.tasks.by_state {
            self.gauge("dispatcher_tasks", vec![Label::new("state", state.as_str())], *n as f64);
        }
        self.gauge("dispatcher_unpublished", vec![], picture.tasks.unpublished as f64);
        for (stage, queue) in [("receiver", &picture.shared.to_receiver), ("finaliser", &picture.shared.to_finaliser)] {
            let n = queue.load(Ordering::Relaxed);
            self.gauge("dispatcher_queue", vec![Label::new("stage", stage)], n as f64);
        }
        let waiting = progress.waiting_for.is_some() || picture.shared.holding.load(Ordering::Acquire);
        self.gauge("dispatcher_waiting", vec![], f64::from(u8::from(waiting)));
        self.gauge("dispatcher_store_up", vec![], f64::from(u8::from(picture.store_up)));
        self.gauge("dispatcher_workers", vec![], picture.shared.workers.load(Ordering::Relaxed) as f64);
        self.count("dispatcher_stored_bytes_total", vec![], progress.bytes);
        self.count("dispatcher_requeued_total", vec![], progress.requeued);
        self.count("dispatcher_noise_total", vec![], picture.shared.noise.load(Ordering::Relaxed));
        let dropped = picture.shared.dropped_lines.load(Ordering::Relaxed);
        self.count("dispatcher_dropped_log_lines_total", vec![], dropped);
        for line in picture.books {
            let labels = vec![Label::new("service", line.service.clone()), Label::new("kind", line.kind.clone())];
            self.count("dispatcher_attempts_total", labels, line.n);
        }
    }

    fn gauge(&self, name: &'static str, labels: Vec<Label>, value: f64) {
        self.recorder.register_gauge(&Key::from_parts(name, labels), &METADATA).set(value);
    }

    fn count(&self, name: &'static str, labels: Vec<Label>, n: u64) {
        self.recorder.register_counter(&Key::from_parts(name, labels), &METADATA).absolute(n);
    }
}

/// What each metric means.
fn describe(recorder: &PrometheusRecorder) {
    let time = [
        ("dispatcher_durable_seconds", "From the last byte of a result to its commit."),
        ("dispatcher_stage_seconds", "How long one piece of work of a stage takes."),
    ];
    for (name, what) in time {
        recorder.describe_histogram(name.into(), Some(Unit::Seconds), what.into());
    }
    recorder.describe_histogram("dispatcher_batch_records".into(), None, "Records that are written together.".into());
    let gauges = [
        ("dispatcher_in_flight", "Tasks leased and without a result."),
        ("dispatcher_answered", "Tasks in flight whose worker said that it brings no result."),
        ("dispatcher_held", "Tasks remembered for a late result."),
        ("dispatcher_stock", "Claimed tasks that wait for a worker."),
        ("dispatcher_service_in_flight", "Tasks of a service in flight."),
        ("dispatcher_service_paused", "1 while nothing of the service is handed out."),
        ("dispatcher_tasks", "Tasks by state."),
        ("dispatcher_unpublished", "Results that stand and are not in their place yet."),
        ("dispatcher_queue", "Messages that wait for a stage."),
        ("dispatcher_waiting", "1 while work waits for the store or for space."),
        ("dispatcher_store_up", "1 while the store answers."),
        ("dispatcher_workers", "Workers with a connection."),
    ];
    for (name, what) in gauges {
        recorder.describe_gauge(name.into(), None, what.into());
    }
    let counters: [(&'static str, &'static str); 5] = [
        ("dispatcher_dropped_log_lines_total", "Log lines that nobody took in time."),
        ("dispatcher_stored_bytes_total", "Bytes of results stored by this process."),
        ("dispatcher_requeued_total", "Attempts of this process that led to another."),
        ("dispatcher_noise_total", "Messages that could not be taken as they were."),
        ("dispatcher_attempts_total", "Attempts by service: dispatched, and by ending."),
    ];
    for (name, what) in counters {
        recorder.describe_counter(name.into(), None, SharedString::from(what));
    }
}

/// How long a picture of the tasks may be shown before it is taken anew: it costs a look at every row.
pub const PICTURE_AGE: Duration = Duration::from_secs(5);
