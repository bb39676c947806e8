//! Works through tasks, several at once, and delivers the verdicts in the order of the tasks.

use std::collections::BTreeMap;

use crossbeam_channel::{Receiver, RecvError, Select};
use hone_judging::{JointVerdict, JudgeTask, Jury, JuryRun, Verdict};
use hone_protocol::GenerationEvent;

use super::cache::{CachedTask, VerdictCache};
use crate::interrupt::Interrupt;
use crate::progress::Activity;

/// The number of tasks a jury works on at once. Its models may have to take turns in memory, and are loaded less often
/// if more answers wait for the same model.
const JURY_IN_FLIGHT: usize = 32;

/// How far the work got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completed {
    /// Everything is judged.
    All,
    /// The user stopped it.
    UntilInterrupt,
}

/// A verdict and its origin.
pub(super) struct Judged<V> {
    /// The index of its task.
    pub(super) index: usize,
    /// The verdict.
    pub(super) verdict: V,
    /// Whether it came from the cache.
    pub(super) from_cache: bool,
}

/// One or more judges and their surroundings.
#[derive(Clone, Copy)]
pub(super) struct Driver<'a> {
    pub(super) judge: &'a Jury,
    pub(super) answered_by: &'a str,
    pub(super) cache: Option<&'a VerdictCache>,
    pub(super) interrupt: &'a Interrupt,
    /// Shows what the models do.
    pub(super) activity: &'a dyn Activity,
}

/// The result of a wait.
enum Wakeup {
    Event { running: usize, channel: usize, event: Result<GenerationEvent, RecvError> },
    Interrupted,
    Nothing,
}

impl Driver<'_> {
    /// Judges all tasks. Verdicts are passed to `on_verdict` in the order of the tasks.
    ///
    /// # Errors
    /// Any error of `on_verdict`, after which judging stops.
    pub(super) fn judge_all<T: CachedTask<Verdict: JointVerdict> + Clone>(
        &self,
        tasks: &[T],
        mut on_verdict: impl FnMut(Judged<T::Verdict>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Completed> {
        let listening = self.interrupt.listen();
        let n_in_flight = if self.judge.is_single() { T::IN_FLIGHT } else { JURY_IN_FLIGHT };
        let mut running: Vec<(usize, JuryRun<T>)> = Vec::new();
        let mut reached = BTreeMap::new();
        let mut waiting = 0..tasks.len();
        let mut next_to_tell = 0;
        loop {
            while running.len() < n_in_flight
                && let Some(index) = waiting.next()
            {
                match self.cache.and_then(|cache| cache.find(&tasks[index])) {
                    Some(mut verdict) => {
                        if verdict.members().is_empty() {
                            let judging = verdict.judging_mut();
                            judging.self_graded = judging.judge == self.answered_by;
                        }
                        reached.insert(index, Judged { index, verdict, from_cache: true });
                    }
                    None => running.push((index, self.judge.start(tasks[index].clone(), self.answered_by))),
                }
            }
            while let Some(judged) = reached.remove(&next_to_tell) {
                on_verdict(judged)?;
                next_to_tell += 1;
            }
            if running.is_empty() {
                return Ok(Completed::All);
            }
            let verdict = match wait(&running, listening.pressed()) {
                Wakeup::Interrupted => return Ok(Completed::UntilInterrupt),
                Wakeup::Nothing => None,
                Wakeup::Event { running: place, channel, event } => {
                    event.iter().for_each(|event| self.activity.hear(event));
                    let verdict = running[place].1.take(channel, event);
                    verdict.map(|verdict| (running.swap_remove(place).0, verdict))
                }
            };
            if let Some((index, verdict)) = verdict {
                if let Some(cache) = self.cache {
                    cache.keep(&tasks[index], &verdict);
                }
                reached.insert(index, Judged { index, verdict, from_cache: false });
            }
        }
    }
}

/// Waits for the first event of any running task, or Ctrl-C.
fn wait<T: JudgeTask<Verdict: JointVerdict> + Clone>(
    running: &[(usize, JuryRun<T>)],
    pressed: &Receiver<()>,
) -> Wakeup {
    let mut channels = Vec::new();
    for (place, (_, run)) in running.iter().enumerate() {
        channels.extend(run.channels().map(|(channel, events)| (place, channel, events)));
    }
    let mut select = Select::new();
    for (_, _, events) in &channels {
        select.recv(events);
    }
    let interrupt = select.recv(pressed);
    let ready = select.select();
    if ready.index() == interrupt {
        // If the channel is closed, no further Ctrl-C can come.
        return ready.recv(pressed).map_or(Wakeup::Nothing, |()| Wakeup::Interrupted);
    }
    let (running, channel, events) = channels[ready.index()];
    Wakeup::Event { running, channel, event: ready.recv(events) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use crossbeam_channel::bounded;
    use hone_judging::{CompareTask, GradeTask, JudgeSettings, scripted};
    use hone_protocol::scripted::{Script, Scripted};

    use super::*;
    use crate::progress::Silent;

    fn judge(timeout: Duration, respond: impl Fn(&str) -> Script + Send + Sync + 'static) -> (Jury, Arc<Scripted>) {
        let settings = JudgeSettings { grade_timeout: timeout, ..JudgeSettings::shipped() };
        let (judge, model) = scripted::judge(settings, move |request| respond(scripted::turn(request)));
        (judge.into(), model)
    }

    fn task(answer: &str) -> GradeTask {
        GradeTask { query: "Q".into(), answer: answer.into(), reference: None }
    }

    #[test]
    fn verdicts_come_in_the_order_of_the_tasks() {
        let respond = |turn: &str| match turn.contains("slow") {
            true => Script::never_ending(&["Well"]),
            false => Script::saying(&["[RESULT] 3"]),
        };
        let (judge, model) = judge(Duration::from_millis(30), respond);
        let (_sender, pressed) = bounded(1);
        let interrupt = Interrupt::from_channel(pressed);
        let driver = Driver { judge: &judge, answered_by: "x", cache: None, interrupt: &interrupt, activity: &Silent };
        let answers = ["slow", "a", "b", "c", "d", "slow", "e"].map(task);
        let mut told = Vec::new();
        let ending = driver.judge_all(&answers, |judged| {
            told.push((judged.index, judged.verdict.score, judged.verdict.judging.failure));
            Ok(())
        });
        assert_eq!(ending.unwrap(), Completed::All);
        let late = || Some("timeout".to_owned());
        let expected = [
            (0, None, late()),
            (1, Some(3), None),
            (2, Some(3), None),
            (3, Some(3), None),
            (4, Some(3), None),
            (5, None, late()),
            (6, Some(3), None),
        ];
        assert_eq!(told, expected);
        assert!(model.was_cancelled());
    }

    #[test]
    fn both_orders_of_a_comparison_are_waited_for() {
        let (judge, _) = judge(Duration::from_secs(60), |turn| match turn.find("first") < turn.find("second") {
            true => Script::saying(&["A. Right."]),
            false => Script::saying(&["B. Right."]),
        });
        let (_sender, pressed) = bounded(1);
        let interrupt = Interrupt::from_channel(pressed);
        let driver = Driver { judge: &judge, answered_by: "x", cache: None, interrupt: &interrupt, activity: &Silent };
        let task = CompareTask { query: "Q".into(), answer_a: "first".into(), answer_b: "second".into() };
        let mut n_consistent = 0;
        let told = |judged: Judged<hone_protocol::Preference>| {
            n_consistent += usize::from(judged.verdict.consistent);
            Ok(())
        };
        driver.judge_all(&vec![task; 5], told).unwrap();
        assert_eq!(n_consistent, 5);
    }

    #[test]
    fn an_interrupt_cancels_what_runs_and_keeps_what_is_told() {
        let (sender, pressed) = bounded(1);
        let respond = move |turn: &str| match turn.contains("slow") {
            true => {
                // It is already pressed at the first wait.
                let _ = sender.try_send(());
                Script::never_ending(&[])
            }
            false => Script::saying(&["[RESULT] 3"]),
        };
        let (judge, model) = judge(Duration::from_secs(60), respond);
        let interrupt = Interrupt::from_channel(pressed);
        let driver = Driver { judge: &judge, answered_by: "x", cache: None, interrupt: &interrupt, activity: &Silent };
        let ending = driver.judge_all(&["slow", "slow"].map(task), |_| Ok(()));
        assert_eq!(ending.unwrap(), Completed::UntilInterrupt);
        assert!(model.was_cancelled());
    }

    #[test]
    fn a_verdict_that_cannot_be_kept_ends_the_work() {
        let (judge, model) = judge(Duration::from_secs(60), |_| Script::saying(&["[RESULT] 3"]));
        let (_sender, pressed) = bounded(1);
        let interrupt = Interrupt::from_channel(pressed);
        let driver = Driver { judge: &judge, answered_by: "x", cache: None, interrupt: &interrupt, activity: &Silent };
        let full = driver.judge_all(&vec![task("a"); 50], |_| anyhow::bail!("the disk is full"));
        assert_eq!(full.unwrap_err().to_string(), "the disk is full");
        assert!(model.requests().len() < 10);
    }
}
