//! Publication: the files of results that stand go where people look for them, in commit order.
//!
//! Owns the queue of what is committed and not yet in place. A failure is tried again until it is done (rule C8): the
//! synced bytes are the result, whatever stands in the way of its name.

use super::{BATCH_MAX, Finaliser, Pending};
use crate::hooks;
use crate::meters::Meters;
use crate::stage::StageFailure;
use dispatcher_core::batch::Urgency;
use dispatcher_core::time::{SpanMs, TimeMs};
use dispatcher_store::Record;
use dispatcher_store::archive::ArchiveError;

/// How long after a failure publishing is tried again.
const AGAIN_AFTER: SpanMs = SpanMs(1000);

impl Finaliser {
    /// When publishing is to be tried next; `None` where there is nothing to publish.
    pub(super) fn next_publication(&self) -> Option<TimeMs> {
        (!self.publishing.is_empty()).then_some(self.publish_again_at)
    }

    /// Publishes up to a batch of what waits.
    pub(super) fn publish(&mut self) -> Result<(), StageFailure> {
        let now = self.now();
        if now < self.publish_again_at {
            return Ok(());
        }
        for _ in 0..BATCH_MAX {
            let Some(publication) = self.publishing.front() else { break };
            hooks::pass("publishing");
            let published = Meters::timed(&self.parts.meters.publish, || self.parts.archive.publish(publication));
            if let Err(gone @ ArchiveError::Gone { .. }) = &published {
                // Waiting brings nothing back: it is told, and the task stays as it is until somebody runs it again.
                tracing::error!("{gone}; `--again missing` computes it anew");
                self.parts.progress.lost();
            } else if let Err(e) = published {
                self.publish_again_at = now.after(AGAIN_AFTER);
                let what = format!("the result of {} to be put in its place: {e}", publication.entry);
                if self.parts.progress.wait_for(Some(what.clone())) {
                    tracing::warn!("waiting for {what}");
                }
                // What blocks this one need not block the others.
                self.publishing.rotate_left(1);
                return Ok(());
            }
            hooks::pass("published");
            let lease = publication.lease;
            self.publishing.pop_front();
            self.batch.push(Pending::Record(Record::Published { lease }, None), Urgency::Relaxed, now);
        }
        if self.publishing.is_empty() && !self.parts.shared.holding.load(std::sync::atomic::Ordering::Acquire) {
            self.parts.progress.wait_for(None);
        }
        Ok(())
    }

    /// What a crash left committed and not in place.
    pub(super) fn find_unpublished(&mut self) -> Result<(), StageFailure> {
        let mut after = None;
        loop {
            let page = self.patiently(|store| async move { store.unpublished(after, BATCH_MAX).await })?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.lease);
            self.publishing.extend(page);
        }
    }
}
