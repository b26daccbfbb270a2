//! What people command: one piece a turn, so that results and hand-outs go on beside a command of a million tasks.
//!
//! Owns when the control list is read and what a piece means for memory, the router and the claims. What a command does
//! to rows is the store's.

use super::{Finaliser, SWEEP_EVERY};
use crate::meters::Meters;
use crate::report::Order;
use crate::sandboxes;
use crate::shared::DrainMode;
use crate::stage::StageFailure;
use dispatcher_core::slot::Settlement;
use dispatcher_core::time::TimeMs;
use dispatcher_store::{Command, CommandId, CommandOutcome, CommandPage, CommandRow, Named, Step, WorkerNote};

/// Commands that are looked at together.
const COMMANDS_MAX: usize = 64;
/// Tasks in one piece; the store makes it less where that would hold its writer for too long.
const PIECE: usize = 5_000;

impl Finaliser {
    /// When the control list is to be read, or its next piece to be done.
    pub(super) fn next_command(&self) -> TimeMs {
        if self.commands.is_empty() { self.control_at } else { self.now() }
    }

    /// Reads the control list where it is time, and does one piece of the oldest command.
    pub(super) fn control(&mut self, now: TimeMs) -> Result<(), StageFailure> {
        if now >= self.control_at {
            self.control_at = now.after(SWEEP_EVERY);
            self.read_commands()?;
            // Whoever imports makes services and corpora without a word to us.
            self.learn_names()?;
        }
        let Some((id, takes_files)) = self.commands.front().copied() else { return Ok(()) };
        if takes_files && !self.remove_files(id)? {
            return Ok(());
        }
        let step = Meters::timed(&self.parts.meters.command, || {
            self.patiently(|store| async move { store.step(id, PIECE, now).await })
        })?;
        self.follow(step, id, now)
    }

    fn read_commands(&mut self) -> Result<(), StageFailure> {
        let page = CommandPage { open: true, max: COMMANDS_MAX, ..CommandPage::default() };
        let open = self.patiently(|store| async move { store.commands(&page).await })?;
        self.commands.clear();
        for row in open {
            self.begin(row)?;
        }
        Ok(())
    }

    /// Takes a command up; those that the store does not carry out are carried out here.
    fn begin(&mut self, row: CommandRow) -> Result<(), StageFailure> {
        match row.command {
            Some(Command::Drain { wait }) => {
                tracing::info!(command = row.id.0, actor = row.actor, wait, "told to drain");
                self.parts.shared.begin_drain(if wait { DrainMode::InFlight } else { DrainMode::Received });
                self.conclude(row.id, CommandOutcome { changed: 1, error: None })?;
                self.order(Order::Drain)
            }
            Some(Command::Import { .. }) => self.conclude(row.id, CommandOutcome::default()),
            None => {
                let error = "this version of the program does not know such a command".to_owned();
                self.conclude(row.id, CommandOutcome { changed: 0, error: Some(error) })
            }
            Some(command) => {
                let takes_files = matches!(command, Command::Delete { what: Named::Sandbox(_) });
                self.commands.push_back((row.id, takes_files));
                Ok(())
            }
        }
    }

    /// Removes the files of what the next piece of a drop takes, before that: a crash in between leaves none behind. Where
    /// one cannot be removed the command ends with the reason, and whether all were is told.
    fn remove_files(&mut self, id: CommandId) -> Result<bool, StageFailure> {
        let doomed = self.patiently(|store| async move { store.doomed(id, PIECE).await })?;
        for gone in &doomed {
            self.publishing.retain(|waiting| waiting.lease.task != gone.lease.task);
            if let Err(e) = sandboxes::remove_files(&*self.parts.archive, self.parts.naming, gone) {
                let error = format!("{e}; see to it and drop the sandbox again");
                tracing::warn!(command = id.0, "a sandbox is not wholly dropped: {error}");
                self.conclude(id, CommandOutcome { changed: 0, error: Some(error) })?;
                self.commands.pop_front();
                return Ok(false);
            }
        }
        crate::hooks::pass("unlinked");
        Ok(true)
    }

    fn conclude(&self, id: CommandId, outcome: CommandOutcome) -> Result<(), StageFailure> {
        let now = self.now();
        self.patiently(|store| {
            let outcome = outcome.clone();
            async move { store.conclude(id, &outcome, now).await }
        })
    }

    /// Memory and workers follow what a piece has done.
    fn follow(&mut self, step: Step, id: CommandId, now: TimeMs) -> Result<(), StageFailure> {
        crate::hooks::pass("commanded");
        let Step { changed, revoked, outcome } = step;
        for lease in &revoked {
            self.remember_taken_away(*lease, now);
            self.parts.set.settle(*lease, &Settlement::Cancelled, now);
            self.awaited.remove(lease);
            self.names.remove(&lease.task);
            if let Some(limit) = &mut self.limit {
                limit.over(lease.task);
            }
        }
        if !revoked.is_empty() {
            let why = "an operator ended this attempt".to_owned();
            self.order(Order::Revoked { leases: revoked, why })?;
        }
        if changed > 0 {
            self.claim_at = now;
        }
        if let Some(outcome) = outcome {
            tracing::info!(command = id.0, changed = outcome.changed, error = outcome.error, "a command is through");
            self.commands.pop_front();
            self.learn_names()?;
            self.give_back_paused()?;
        }
        Ok(())
    }

    /// What was claimed of a service that is paused now goes back.
    fn give_back_paused(&self) -> Result<(), StageFailure> {
        let paused = self.services.iter().filter(|service| service.settings.paused);
        paused.map(|service| service.id).try_for_each(|service| self.order(Order::GiveBack(service)))
    }

    /// Notes how the workers are. A store that is away loses one such picture and nothing else.
    pub(super) fn note_workers(&self, notes: Vec<WorkerNote>) -> Result<(), StageFailure> {
        let by = self.parts.dispatcher;
        self.patiently(|store| {
            let notes = notes.clone();
            async move { store.note_workers(by, &notes).await }
        })
    }
}
