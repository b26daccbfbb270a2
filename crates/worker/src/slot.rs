//! One slot: a thread that works on one task at a time.
//!
//! Owns what happens around [`Worker::work`]: the input in its place, a panic caught, the result in the outbox before
//! anybody hears of it, the folder emptied. Knows nothing of the connection.

use crate::cancel::{Cancel, CancelReason};
use crate::delivery::Delivery;
use crate::outbox::Outbox;
use crate::scratch::{SlotFolder, SlotFolders, base_name};
use crate::session::{Ended, TaskOrder};
use crate::work::{Assignment, Input, Outcome, Worker};
use bytes::Bytes;
use crossbeam_channel::Receiver;
use dispatcher_core::wire::TokenText;
use std::any::Any;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Duration;

/// A task for a slot.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) token: TokenText,
    pub(crate) order: TaskOrder,
    pub(crate) input: JobInput,
    pub(crate) cancel: Cancel,
    pub(crate) inline_max: u64,
}

/// Where the input of a job is.
#[derive(Debug)]
pub(crate) enum JobInput {
    Here(Bytes),
    /// In this file, which the slot moves into its own folder.
    Fetched(PathBuf),
}

/// Works on every job that comes, until there will be no more. `ended` is told of each.
pub(crate) fn work_on(
    jobs: &Receiver<Job>,
    worker: &dyn Worker,
    outbox: &Outbox,
    mut folders: SlotFolders,
    ended: impl Fn(TokenText, Ended),
) {
    for job in jobs {
        let (token, cancel, inline_max) = (job.token.clone(), job.cancel.clone(), job.inline_max);
        folders.mark(&token);
        let (outcome, folder) = match assignment(job, folders.next()) {
            Ok(task) => (judged(worker, &task, &cancel), Some(task.folder)),
            Err(e) => {
                (Outcome::retryable("worker", "scratch", &format!("the input cannot be put in place: {e}")), None)
            }
        };
        let how = deliver(outbox, &token, outcome, &cancel, inline_max);
        if let Some(folder) = folder {
            folders.take_back(&folder);
        }
        ended(token, how);
    }
}

fn assignment(job: Job, folder: SlotFolder) -> io::Result<Assignment> {
    let TaskOrder { task, service, corpus, entry, size, limit_ms, attempt } = job.order;
    let input = match job.input {
        JobInput::Here(bytes) => Input::Bytes(bytes),
        JobInput::Fetched(from) => {
            let to = folder.input_path(&base_name(&entry))?;
            fs::rename(from, &to)?;
            Input::File(to)
        }
    };
    let (limit, inline_max) = (Duration::from_millis(limit_ms.0), job.inline_max);
    Ok(Assignment { task, attempt, service, corpus, entry, size, limit, input, inline_max, folder })
}

/// What work says, with a panic as a cause (rule R4), and with the time limit as a cause where work gave the task back for it.
fn judged(worker: &dyn Worker, task: &Assignment, cancel: &Cancel) -> Outcome {
    // Whatever work left half done is its own: nothing of it is used after a panic but the folder, which is emptied.
    let outcome = catch_unwind(AssertUnwindSafe(|| worker.work(task, cancel)))
        .unwrap_or_else(|panic| Outcome::retryable("crash", "panic", panic_text(&*panic)));
    match (outcome, cancel.reason()) {
        (Outcome::Release, Some(CancelReason::TimeLimit)) => {
            Outcome::retryable("timeout", "wallclock", &format!("the time limit of {:?} is over", task.limit))
        }
        (outcome, _) => outcome,
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a text")
}

fn deliver(outbox: &Outbox, token: &TokenText, outcome: Outcome, cancel: &Cancel, inline_max: u64) -> Ended {
    if matches!(cancel.reason(), Some(CancelReason::Cancelled | CancelReason::Unknown)) {
        return Ended::GivenBack;
    }
    let delivery = match Delivery::new(token.clone(), outcome, inline_max) {
        Ok(None) => return Ended::GivenBack,
        Ok(Some(delivery)) => outbox.put(token, delivery),
        Err(e) => Err(e),
    };
    let bytes = delivery.unwrap_or_else(|e| {
        tracing::error!(error = %e, "a result could not be kept; its task is reported as to be tried again");
        let why = format!("the worker cannot keep the result: {e}");
        outbox.put_cause(token, Delivery::cause(token.clone(), "worker", "outbox", &why));
        0
    });
    Ended::Finished { bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::OutboxKind;
    use crate::scratch::Scratch;
    use dispatcher_core::id::{EntryName, TaskId};
    use dispatcher_core::time::SpanMs;
    use dispatcher_core::wire::FromWorker;

    struct Closure<F>(F);

    impl<F: Fn(&Assignment, &Cancel) -> Outcome + Send + Sync> Worker for Closure<F> {
        fn work(&self, task: &Assignment, cancel: &Cancel) -> Outcome {
            self.0(task, cancel)
        }
    }

    /// What becomes of one task that `work` works on: how it ended, and what is in the outbox.
    fn run_one(
        cancelled: Option<CancelReason>,
        work: impl Fn(&Assignment, &Cancel) -> Outcome + Send + Sync,
    ) -> (Ended, Option<FromWorker>) {
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::open(dir.path()).unwrap();
        let (outbox, _) = Outbox::open(&OutboxKind::Memory, scratch.kept()).unwrap();
        let fetched = scratch.fetch_path();
        fs::write(&fetched, "input").unwrap();
        let token = TokenText("t".to_owned());
        let cancel = Cancel::new().unwrap();
        cancelled.into_iter().for_each(|reason| cancel.cancel(reason));
        let order = TaskOrder {
            task: TaskId(1),
            service: "s".to_owned(),
            corpus: "c".to_owned(),
            entry: EntryName(b"folder/caf\xe9".to_vec()),
            size: 5,
            limit_ms: SpanMs::seconds(1),
            attempt: 0,
        };
        let (jobs, receiver) = crossbeam_channel::bounded(1);
        jobs.send(Job { token: token.clone(), order, input: JobInput::Fetched(fetched), cancel, inline_max: 65_536 })
            .unwrap();
        drop(jobs);
        let (told, heard) = std::sync::mpsc::channel();
        work_on(&receiver, &Closure(work), &outbox, scratch.slot(0), |_, how| told.send(how).unwrap());
        (heard.recv().unwrap(), outbox.get(&token).map(|waiting| waiting.message.clone()))
    }

    fn cause_of(message: Option<FromWorker>) -> String {
        let Some(FromWorker::Retryable { cause, .. }) = message else { panic!("a cause") };
        format!("{}:{} {}", cause.category, cause.what, cause.details)
    }

    #[test]
    fn a_fetched_input_lies_in_the_slot_s_folder_under_its_own_name() {
        let (how, _) = run_one(None, |task, _| {
            let Input::File(path) = &task.input else { panic!("a file") };
            assert_eq!(path.file_name().unwrap(), base_name(&task.entry));
            assert!(path.starts_with(task.folder.path().unwrap()));
            assert_eq!(task.input.read().unwrap(), "input");
            Outcome::done(Vec::new())
        });
        assert_eq!(how, Ended::Finished { bytes: 0 });
    }

    // Rule R4.
    #[test]
    fn a_panic_of_work_becomes_a_retryable_cause() {
        let (how, message) = run_one(None, |_, _| panic!("out of luck"));
        assert_eq!(how, Ended::Finished { bytes: 0 });
        assert_eq!(cause_of(message), "crash:panic out of luck");
    }

    // Rules A3, R4.
    #[test]
    fn work_that_gives_up_at_its_time_limit_is_told_as_the_time_limit() {
        let (_, message) = run_one(Some(CancelReason::TimeLimit), |_, cancel| {
            assert!(cancel.is_cancelled());
            Outcome::Release
        });
        assert!(cause_of(message).starts_with("timeout:wallclock "));
    }

    #[test]
    fn what_work_brings_of_a_cancelled_task_is_not_kept() {
        let (how, message) = run_one(Some(CancelReason::Cancelled), |_, _| Outcome::done(Vec::new()));
        assert_eq!((how, message), (Ended::GivenBack, None));
    }

    #[test]
    fn a_result_that_cannot_be_kept_is_a_cause_that_says_so() {
        let (_, message) = run_one(None, |_, _| Outcome::done(vec![crate::OutPart::result_file("/nowhere/at/all")]));
        assert!(cause_of(message).starts_with("worker:outbox "));
    }
}
