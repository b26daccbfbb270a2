//! How a reply says which attempt it belongs to.

use crate::id::{Epoch, LeaseId, Run, ServiceId, TaskId};

/// By what a reply names its attempt (rule C11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attribution<'a> {
    /// By its token.
    Token {
        /// The run.
        run: Run,
        /// The claim.
        epoch: Epoch,
    },
    /// By the worker's name: the newest attempt given to that worker, or the newest of all.
    Worker(&'a str),
}

/// What a reply says about where it belongs. A [`LeaseId`] is one that came with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reply<'a> {
    /// The task.
    pub task: TaskId,
    /// The attempt.
    pub by: Attribution<'a>,
    /// The service, where the reply names one (rule C12).
    pub service: Option<ServiceId>,
}

impl<'a> Reply<'a> {
    /// A reply of the legacy wire: a task, a worker's name and a service.
    #[must_use]
    pub const fn by_worker(task: TaskId, worker: &'a str, service: ServiceId) -> Self {
        Self { task, by: Attribution::Worker(worker), service: Some(service) }
    }
}

impl From<LeaseId> for Reply<'_> {
    fn from(lease: LeaseId) -> Self {
        Self { task: lease.task, by: Attribution::Token { run: lease.run, epoch: lease.epoch }, service: None }
    }
}
