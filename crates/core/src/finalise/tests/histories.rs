//! Random histories of one task: whatever comes, the books balance and the rules hold.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Claim,
    HandOut(u64),
    Begin(u64),
    Result(u64, Status),
    End(u64, Ending, bool),
    InputFailed(u64, bool),
    Return(u64),
    Rerun,
    Cancel,
    Refuse(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let back = 0..3_u64;
    let status = prop::sample::select(Status::ALL.to_vec());
    let ending = prop::sample::select(vec![
        Ending::Expired,
        Ending::WorkerLost,
        Ending::TimeLimit,
        Ending::Unusable,
        Ending::RetryableCause,
        Ending::Undeliverable,
        Ending::HandedBack,
    ]);
    let step = prop_oneof![
        6 => Just(Step::Claim),
        4 => back.clone().prop_map(Step::HandOut),
        3 => back.clone().prop_map(Step::Begin),
        4 => (back.clone(), status).prop_map(|(n, s)| Step::Result(n, s)),
        5 => (back.clone(), ending, any::<bool>()).prop_map(|(n, e, b)| Step::End(n, e, b)),
        1 => (back.clone(), any::<bool>()).prop_map(|(n, r)| Step::InputFailed(n, r)),
        1 => back.clone().prop_map(Step::Return),
        1 => Just(Step::Rerun),
        1 => Just(Step::Cancel),
        1 => back.prop_map(Step::Refuse),
    ];
    prop::collection::vec(step, 1..60)
}

impl Bench {
    /// The lease of the newest claim but `back`, under the run it was made in.
    fn recall(leases: &[LeaseId], back: u64) -> Option<LeaseId> {
        leases.iter().rev().nth(usize::try_from(back).unwrap_or(0)).copied()
    }

    fn play(&mut self, step: &Step, leases: &mut Vec<LeaseId>) -> Option<Record> {
        let recall = |back: &u64| Self::recall(leases, *back);
        let record = match step {
            Step::Claim if self.task.state == TaskState::Ready => {
                leases.push(self.claim());
                return None;
            }
            Step::Claim => return None,
            Step::Rerun => {
                self.rerun();
                return None;
            }
            Step::Cancel => {
                self.cancel();
                return None;
            }
            Step::Refuse(back) => {
                let lease = recall(back)?;
                let record = result(lease, Status::Error);
                let attempt = self.attempts.iter().find(|a| a.epoch == lease.epoch).cloned();
                let decision = refuse(self.task.clone(), attempt, self.policy, &record, "no", self.now);
                self.take(decision, lease.epoch);
                return None;
            }
            Step::HandOut(back) => {
                Record::HandedOut { lease: recall(back)?, worker: worker(), at: self.now, began: false }
            }
            Step::Begin(back) => Record::Began { lease: recall(back)?, at: self.now },
            Step::Result(back, status) => result(recall(back)?, *status),
            Step::End(back, ending, began) => ended(recall(back)?, *ending, *began, "why"),
            Step::InputFailed(back, retry) => {
                let why = message("dispatcher", "input_missing");
                Record::InputFailed { lease: recall(back)?, why, retry: *retry, at: self.now }
            }
            Step::Return(back) => Record::Returned { lease: recall(back)? },
        };
        Some(record)
    }
}

proptest! {
    // Rules A1, A5, D5, D6.
    #[test]
    fn any_history_keeps_the_books_and_a_good_result(steps in steps()) {
        let mut bench = Bench::new();
        let mut leases = Vec::new();
        for step in &steps {
            let before = bench.clone();
            if let Some(record) = bench.play(step, &mut leases) {
                let answer = bench.tell(&record);
                let (after, moves) = (bench.clone(), bench.moves.len());
                let again = bench.tell(&record);
                prop_assert_eq!(&bench.task, &after.task, "told twice changes nothing: {:?}", record);
                prop_assert_eq!(&bench.attempts, &after.attempts);
                let kept = matches!(again, Answer::Superseded { .. } | Answer::Stale | Answer::Unknown | Answer::Noted
                    | Answer::Cancelled | Answer::Requeued { .. } | Answer::DeadLettered { .. }
                    | Answer::Stored { repeat: true, .. });
                prop_assert!(kept, "{:?} then {:?}", answer, again);
                bench.moves.truncate(moves);
            }
            bench.assert_balanced();
            let good = |b: &Bench| b.task.standing.is_some_and(|s| s.status.is_usable());
            if good(&before) && bench.task.run == before.task.run {
                prop_assert!(good(&bench), "a usable result is never lost within a run");
            }
            prop_assert!(bench.task.charged <= bench.policy.budget.saturating_add(bench.attempts.len() as u32));
        }
    }
}
