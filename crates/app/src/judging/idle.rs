//! The examinations of a judge and of a critic, which start automatically in a chat.
//!
//! They run in the batch lane while the chat is idle, and drop their work when a question arrives: the judge's model
//! and its KV cache would take memory that the chat may need. Every verdict is cached, so an examination resumes where
//! it stopped, also in the next session.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, SendTimeoutError, Sender, bounded, select};
use hone_agents::{Asker, Exchange, Expected};
use hone_bus::Mailbox;
use hone_judging::{Judge, Jury, Marks, Standing, Standings};
use hone_protocol::{Envelope, Generate, QueryId, Subject};

use super::{JudgeSession, critic_examination};
use crate::app::App;
use crate::interrupt::Interrupt;
use crate::judge;
use crate::progress::Silent;

/// The subjects that tell whether the user is waiting.
const SUBJECTS: [Subject; 7] = [
    Subject::QueryReceived,
    Subject::QueryCancelled,
    Subject::ResponseGeneration,
    Subject::ResponseFailed,
    Subject::CritiqueResult,
    Subject::PairwiseResult,
    Subject::SessionClosed,
];

/// How long the chat must be idle before the examination resumes.
const REST: Duration = Duration::from_secs(2);

/// How often a running examination is interrupted while the user is waiting.
const PRESS_INTERVAL: Duration = Duration::from_millis(100);

/// The examination of a chat's judge. Dropping it stops it; the grades so far are kept.
pub struct IdleExamination {
    stop: Option<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

/// Advises which judge may replace the model with this name.
pub type Advice = Box<dyn Fn(&str, &App) -> String + Send>;

/// The parts of the chat that the examination needs.
pub struct Chat<'a> {
    /// The judges that grade the chat's answers once they have passed.
    pub jury: &'a Jury,
    /// The engine.
    pub generator: &'a Arc<dyn Generate>,
    /// The asker whose questions take precedence.
    pub asker: &'a Asker,
    /// Announces the end to the user.
    pub announce: Box<dyn Fn(String) + Send>,
    /// Advises which judge may replace a model that does not pass.
    pub advice: Advice,
}

impl IdleExamination {
    /// Starts or continues the examination of the judge that grades in this chat, if it is installed and has not taken
    /// it; in a jury, of the first such juror. The critic's follows.
    pub fn start(app: &App, chat: Chat<'_>) -> Option<IdleExamination> {
        let unexamined = |judge| judge::unexamined(&app.config, &app.store, app.data_folder(), judge);
        let judge = chat.jury.judges().find_map(|judge| Some((judge, unexamined(judge)?)));
        let critic = critic_examination::unexamined(app);
        if judge.is_none() && critic.is_none() {
            return None;
        }
        if let Some((judge, model)) = &judge {
            say_that_it_runs(judge, model);
        }
        let (stop, stopped) = bounded::<()>(0);
        let (press, pressed) = bounded(1);
        let (orders_sender, orders) = bounded(0);
        let mailbox = chat.asker.listen("examination", &SUBJECTS);
        let watch = Watch { expected: chat.asker.expected(), open: HashMap::new(), idle_since: Instant::now() };
        let examined = |model| {
            let mut config = app.config.clone();
            config.judge.model = model;
            app.with_config(config)
        };
        let worker = Worker {
            app: app.with_config(app.config.clone()),
            judge: judge.map(|(judge, model)| (judge.clone(), examined(model))),
            critic: critic.map(examined),
            generator: Arc::clone(chat.generator),
            announce: chat.announce,
            advice: chat.advice,
            interrupt: Interrupt::from_channel(pressed),
        };
        let threads = [
            spawn("examination", move || worker.run(&orders)),
            spawn("examination watch", move || watch.run(&mailbox, &stopped, &press, &orders_sender)),
        ];
        Some(IdleExamination { stop: Some(stop), threads: threads.into_iter().flatten().collect() })
    }
}

impl Drop for IdleExamination {
    fn drop(&mut self) {
        drop(self.stop.take());
        for thread in self.threads.drain(..) {
            // A thread that panicked has already said so.
            let _ = thread.join();
        }
    }
}

/// Sets the reason for missing grades: the judge is being examined.
fn say_that_it_runs(judge: &Judge, model: &str) {
    let reason = format!("{model} takes its examination while nobody waits, and grades once it has passed");
    let standing = Standing::Barred(reason);
    let standings = judge.standings();
    judge.set_standings(match model == judge.settings().model {
        true => Standings { judge: standing, ..standings },
        false => Standings { generator: standing, ..standings },
    });
}

/// Spawns a thread; if the system has none left, the examination is skipped.
fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).ok()
}

/// An order to the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// The chat is idle.
    Run,
    /// The chat ends.
    Leave,
}

/// Examines the judge and the critic.
struct Worker {
    /// The chat's configuration.
    app: App,
    /// The judge that grades in the chat, and the configuration whose judge is the examined model.
    judge: Option<(Judge, App)>,
    /// The configuration whose judge is the critic's model.
    critic: Option<App>,
    generator: Arc<dyn Generate>,
    announce: Box<dyn Fn(String) + Send>,
    advice: Advice,
    interrupt: Interrupt,
}

impl Worker {
    fn run(self, orders: &Receiver<Order>) {
        if let Some((judge, examined)) = &self.judge {
            self.examine_judge(judge, examined, orders);
        }
        if let Some(examined) = &self.critic
            && let Err(error) = self.examine_critic(examined, orders)
        {
            (self.announce)(format!("{} cannot be examined as a critic: {error:#}", examined.config.judge.model));
        }
    }

    fn examine_judge(&self, judge: &Judge, examined: &App, orders: &Receiver<Order>) {
        let marks = self.session(examined).and_then(|session| {
            let marks = while_idle(orders, || session.examine(&Silent))?;
            marks.iter().try_for_each(|marks| session.keep_marks(examined, marks))?;
            Ok(marks)
        });
        let App { config, store, .. } = &self.app;
        judge.set_standings(judge::standings(config, store, self.app.data_folder(), judge));
        let model = &examined.config.judge.model;
        match marks {
            Ok(Some(marks)) => {
                (self.announce)(verdict(model, &marks, config.judge.least_auc, &(self.advice)(model, &self.app)))
            }
            Ok(None) => {}
            Err(error) => (self.announce)(format!("{model} cannot be examined: {error:#}")),
        }
    }

    /// Examines the critic for one type of text after the other.
    fn examine_critic(&self, examined: &App, orders: &Receiver<Order>) -> anyhow::Result<()> {
        let (session, model) = (self.session(examined)?, &examined.config.judge.model);
        for kind in critic_examination::due(examined, model) {
            let marks = while_idle(orders, || session.examine_critic(examined, kind, &Silent))?;
            let Some(marks) = marks else { break };
            let word = if marks.passes(self.app.config.critique.least_precision) { "passed" } else { "not passed" };
            (self.announce)(format!("{model} has {word} the critic's examination for texts of type {kind}"));
        }
        Ok(())
    }

    fn session(&self, examined: &App) -> anyhow::Result<JudgeSession> {
        JudgeSession::examining(examined, |_| Ok(Arc::clone(&self.generator)), self.interrupt.clone())
    }
}

/// Works while the chat is idle, until there is a result; `None` if the chat ends first.
fn while_idle<T>(
    orders: &Receiver<Order>,
    mut work: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<Option<T>> {
    while orders.recv() == Ok(Order::Run) {
        if let Some(result) = work()? {
            return Ok(Some(result));
        }
    }
    Ok(None)
}

/// The message for the user at the end.
fn verdict(model: &str, marks: &Marks, bar: f64, advice: &str) -> String {
    let auc = marks.auc;
    if marks.passes(bar) {
        return format!("{model} has passed its examination (AUC {auc}): it grades from now on, also what is due");
    }
    let failed = format!(
        "{model} did not pass its examination and does not grade: it tells good answers from bad ones with an AUC of \
         {auc}, and the lower end must be above {bar}"
    );
    if advice.is_empty() { failed } else { format!("{failed}; {advice}") }
}

/// Tracks whether the user is waiting.
struct Watch {
    expected: Expected,
    /// The questions with outstanding results.
    open: HashMap<QueryId, Exchange>,
    idle_since: Instant,
}

impl Watch {
    /// Lets the worker run while the chat is idle, and interrupts it while the user is waiting, until the chat or the
    /// examination ends.
    fn run(mut self, mailbox: &Mailbox, stopped: &Receiver<()>, press: &Sender<()>, worker: &Sender<Order>) {
        let (nobody, _kept) = bounded(0);
        loop {
            let rested = self.open.is_empty() && self.idle_since.elapsed() >= REST;
            let pause = if self.open.is_empty() { REST } else { PRESS_INTERVAL };
            select! {
                recv(stopped) -> _ => break,
                send(if rested { worker } else { &nobody }, Order::Run) -> sent => if sent.is_err() { return },
                recv(mailbox.receiver()) -> envelope => match envelope {
                    Ok(envelope) => self.take(&envelope),
                    Err(_) => break,
                },
                default(pause) => {}
            }
            if !self.open.is_empty() {
                // An earlier press may be forgotten or not yet heard.
                let _ = press.try_send(());
            }
        }
        while let Err(SendTimeoutError::Timeout(_)) = worker.send_timeout(Order::Leave, PRESS_INTERVAL) {
            let _ = press.try_send(());
        }
    }

    fn take(&mut self, envelope: &Envelope) {
        self.idle_since = Instant::now();
        if envelope.subject() == Subject::SessionClosed {
            self.open.clear();
        }
        let Some(id) = envelope.correlation_id else { return };
        if envelope.subject() == Subject::QueryReceived {
            self.open.insert(id, Exchange::new(id));
        }
        if let Some(exchange) = self.open.get_mut(&id) {
            exchange.take(envelope);
        }
        let expected = self.expected;
        self.open.retain(|_, exchange| !exchange.is_complete(expected));
    }
}

#[cfg(test)]
mod tests {
    use hone_agents::Expected;
    use hone_judging::QuestionGrades;
    use hone_protocol::{GenerateError, Payload, Query, RespondentId, SessionId};

    use super::*;

    fn watch() -> Watch {
        Watch { expected: Expected::default(), open: HashMap::new(), idle_since: Instant::now() - REST }
    }

    fn asks(watch: &mut Watch, number: u128, payload: Payload) {
        let id = QueryId::from_bits(number);
        watch.take(&Envelope::new("test", SessionId::from_bits(9), payload).about(id, id, RespondentId::A));
    }

    fn query() -> Payload {
        Payload::QueryReceived(Query::new("why?", "m"))
    }

    #[test]
    fn somebody_waits_until_every_question_is_settled() {
        let mut watch = watch();
        asks(&mut watch, 1, query());
        asks(&mut watch, 2, query());
        assert_eq!((watch.open.len(), watch.idle_since.elapsed() < REST), (2, true));
        asks(&mut watch, 1, Payload::ResponseFailed(GenerateError::Stopped));
        assert_eq!(watch.open.len(), 1);
        asks(&mut watch, 3, Payload::SessionClosed(hone_protocol::Nothing {}));
        assert!(watch.open.is_empty());
    }

    #[test]
    fn the_end_of_an_examination_says_what_follows() {
        let right = QuestionGrades { good: 5.0, mediocre: 3.0, bad: 1.0, is_manipulative: false };
        let wrong = QuestionGrades { good: 1.0, bad: 5.0, ..right };
        let told = |grades| verdict("j", &Marks::of(&[grades; 20], None, &[1.0]), 0.65, "`hone pull k`");
        assert!(told(right).starts_with("j has passed its examination (AUC 1.00"), "{}", told(right));
        assert!(told(wrong).starts_with("j did not pass its examination") && told(wrong).ends_with("; `hone pull k`"));
    }

    /// Runs the watch against a worker that does `work`.
    fn run(work: impl FnOnce(&Receiver<Order>, &Receiver<()>)) {
        let bus = hone_bus::Bus::new();
        let asker = Asker::new(&bus, "test", Expected::default());
        let mailbox = asker.listen("examination", &SUBJECTS);
        let ((stop, stopped), (press, pressed), (sender, orders)) = (bounded::<()>(0), bounded(1), bounded(0));
        std::thread::scope(|scope| {
            scope.spawn(move || watch().run(&mailbox, &stopped, &press, &sender));
            assert_eq!(orders.recv(), Ok(Order::Run));
            drop(stop);
            work(&orders, &pressed);
        });
    }

    #[test]
    fn a_chat_that_ends_interrupts_the_examination() {
        run(|orders, pressed| {
            assert_eq!(pressed.recv(), Ok(()));
            assert_eq!(orders.recv(), Ok(Order::Leave));
        });
    }

    #[test]
    fn a_question_interrupts_the_examination_until_it_is_settled() {
        let bus = hone_bus::Bus::new();
        let mut asker = Asker::new(&bus, "test", Expected::default());
        let mailbox = asker.listen("examination", &SUBJECTS);
        let ((stop, stopped), (press, pressed), (sender, orders)) = (bounded::<()>(0), bounded(1), bounded(0));
        std::thread::scope(|scope| {
            scope.spawn(move || watch().run(&mailbox, &stopped, &press, &sender));
            assert_eq!(orders.recv(), Ok(Order::Run));
            let Payload::QueryReceived(query) = query() else { panic!("it is a question") };
            let exchange = asker.ask(SessionId::from_bits(9), query);
            assert_eq!(pressed.recv(), Ok(()), "the work is dropped");
            assert!(orders.recv_timeout(2 * REST).is_err(), "somebody waits");
            let failed = Payload::ResponseFailed(GenerateError::Stopped);
            let failed = Envelope::new("test", SessionId::from_bits(9), failed);
            bus.publish(failed.about(exchange.id(), exchange.id(), RespondentId::A)).unwrap();
            assert_eq!(orders.recv(), Ok(Order::Run));
            drop(stop);
            drop(orders);
        });
    }
}
