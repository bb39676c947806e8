//! The thread that an agent runs on, and the supervisor that restarts it.

use std::any::Any;
use std::convert::Infallible;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, TryRecvError, bounded};
use hone_protocol::Envelope;

use crate::bus::Bus;
use crate::inbox::Inbox;
use crate::subscriber::Subscription;

/// The private half of an agent: its state and its behaviour. It is created on its own thread and never leaves it.
pub trait Agent {
    /// All events that the agent handles.
    type Event;

    /// Waits for the next event; `None` when the inbox is told to stop. A stop comes before messages, and messages come
    /// before work in progress.
    fn next_event(&mut self, inbox: &mut Inbox) -> Option<Self::Event>;

    /// Handles an event.
    fn handle_event(&mut self, event: Self::Event, inbox: &mut Inbox);

    /// Cleans up after the last event.
    fn stopped(&mut self, inbox: &mut Inbox);

    /// Called on the replacement of an agent that panicked while it worked on `message`. The message is not delivered
    /// again; callers that wait for an answer to it must be told here.
    fn recover(&mut self, message: &Envelope);
}

/// The public half of an agent. Dropping it stops the agent and joins its thread.
pub struct AgentHandle {
    name: String,
    stop: Option<Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl AgentHandle {
    /// The agent's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for AgentHandle {
    fn drop(&mut self) {
        self.stop = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!(agent = self.name, "the thread of an agent ended with a panic");
        }
    }
}

/// Subscribes an agent and starts it on a thread of its own, named after the subscription. It receives everything that
/// is published after this returns. `make` is called again after every panic of the agent.
///
/// # Errors
/// When the system cannot create a thread.
pub fn spawn<A, F>(bus: &Bus, subscription: Subscription, make: F) -> io::Result<AgentHandle>
where
    A: Agent,
    F: FnMut() -> A + Send + 'static,
{
    let name = subscription.name.clone();
    let (stop, stopped) = bounded(0);
    let inbox = Inbox::new(bus.subscribe(subscription), stopped);
    let supervisor = Supervisor { name: name.clone(), inbox, make, pause: Pause::default() };
    let thread = Builder::new().name(name.clone()).spawn(move || supervisor.run())?;
    Ok(AgentHandle { name, stop: Some(stop), thread: Some(thread) })
}

struct Supervisor<F> {
    name: String,
    inbox: Inbox,
    make: F,
    pause: Pause,
}

impl<A: Agent, F: FnMut() -> A> Supervisor<F> {
    fn run(mut self) {
        tracing::debug!(agent = self.name, "started");
        loop {
            let began = Instant::now();
            let was_stopping = self.is_stopping();
            // The state is discarded after a panic, and every change to the inbox leaves it consistent.
            let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.live())) else { break };
            let pause = self.pause.after(began.elapsed());
            tracing::error!(
                agent = self.name,
                panic = text_of(&*panic),
                ?pause,
                "an agent panicked and will be restarted"
            );
            if was_stopping {
                break;
            }
            // The pause is over or the agent must stop; in both cases a new agent has to clean up.
            let _ = self.inbox.stop().recv_timeout(pause);
        }
        tracing::debug!(agent = self.name, "stopped");
    }

    fn live(&mut self) {
        let mut agent = (self.make)();
        for message in self.inbox.release(|_| true) {
            agent.recover(&message);
        }
        while let Some(event) = agent.next_event(&mut self.inbox) {
            agent.handle_event(event, &mut self.inbox);
        }
        agent.stopped(&mut self.inbox);
    }

    fn is_stopping(&self) -> bool {
        self.inbox.stop().try_recv() == Err(TryRecvError::Disconnected)
    }
}

/// The pause before an agent is restarted; it grows with each panic that soon follows the previous one.
#[derive(Debug)]
struct Pause(Duration);

const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

impl Default for Pause {
    fn default() -> Self {
        Pause(SHORTEST_PAUSE)
    }
}

impl Pause {
    /// The pause for an agent that panicked after it had run for `lived`.
    fn after(&mut self, lived: Duration) -> Duration {
        if lived > 2 * LONGEST_PAUSE {
            *self = Pause::default();
        }
        let pause = self.0;
        self.0 = (2 * pause).min(LONGEST_PAUSE);
        pause
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crossbeam_channel::{Receiver, select_biased};
    use hone_protocol::{Nothing, Payload, SessionId, Stored, Subject};

    use super::*;
    use crate::subscriber::Overload;

    /// Reports its events. It panics at number 13, defers odd numbers until an even one arrives, and stops only at the
    /// end.
    struct Reporter {
        report: Sender<String>,
    }

    impl Agent for Reporter {
        type Event = Arc<Envelope>;

        fn next_event(&mut self, inbox: &mut Inbox) -> Option<Self::Event> {
            select_biased! {
                recv(inbox.stop()) -> _ => None,
                recv(inbox.messages()) -> message => message.ok(),
            }
        }

        fn handle_event(&mut self, message: Self::Event, inbox: &mut Inbox) {
            inbox.claim(&message);
            let number = number(&message);
            if number == 13 {
                panic!("unlucky");
            }
            if number % 2 == 1 {
                let refused = inbox.defer(message).is_err();
                self.report.send(format!("{number} {}", if refused { "refused" } else { "aside" })).unwrap();
            } else {
                self.report.send(format!("{number}")).unwrap();
                while let Some(earlier) = inbox.next_deferred() {
                    self.report.send(format!("{} at last", self::number(&earlier))).unwrap();
                }
            }
            inbox.release(|_| true);
        }

        fn stopped(&mut self, inbox: &mut Inbox) {
            let left = inbox.take_deferred(|message| number(message) > 4);
            self.report.send(format!("stopped with {} above 4", left.len())).unwrap();
        }

        fn recover(&mut self, message: &Envelope) {
            self.report.send(format!("recovered from {}", number(message))).unwrap();
        }
    }

    fn number(message: &Envelope) -> u64 {
        match message.payload {
            Payload::MemoryStored(Stored { sequence }) => sequence,
            _ => 0,
        }
    }

    fn start(bus: &Bus, capacity: usize) -> (AgentHandle, Receiver<String>) {
        let (report, reports) = crossbeam_channel::unbounded();
        let subjects = vec![Subject::MemoryStored, Subject::SessionClosed];
        let subscription =
            Subscription { name: "reporter".into(), subjects, sessions: None, capacity, overload: Overload::Wait };
        (spawn(bus, subscription, move || Reporter { report: report.clone() }).unwrap(), reports)
    }

    /// Checks the reports of an agent that receives these numbers; 0 is the end of a session.
    #[track_caller]
    fn check(capacity: usize, numbers: &[u64], expected: &[&str]) {
        let bus = Bus::new();
        let (handle, reports) = start(&bus, capacity);
        for number in numbers {
            let payload = match number {
                0 => Payload::SessionClosed(Nothing {}),
                _ => Payload::MemoryStored(Stored { sequence: *number }),
            };
            bus.publish(Envelope::new("tester", SessionId::from_bits(1), payload)).unwrap();
        }
        // All reports but the last arrive before the stop is requested.
        let mut seen: Vec<String> = (1..expected.len()).map(|_| reports.recv().unwrap()).collect();
        drop(handle);
        assert!(bus.mailboxes().is_empty(), "the subscription ends with the agent");
        seen.extend(reports.iter());
        assert_eq!(seen, expected);
    }

    #[test]
    fn an_agent_handles_its_messages_in_order_and_stops() {
        check(9, &[], &["stopped with 0 above 4"]);
        check(9, &[2, 4, 0], &["2", "4", "0", "stopped with 0 above 4"]);
        check(9, &[3, 5, 7], &["3 aside", "5 aside", "7 aside", "stopped with 2 above 4"]);
    }

    #[test]
    fn no_more_is_deferred_than_the_mailbox_holds() {
        check(
            2,
            &[3, 5, 7, 2],
            &["3 aside", "5 aside", "7 refused", "2", "3 at last", "5 at last", "stopped with 0 above 4"],
        );
    }

    #[test]
    fn after_a_panic_an_agent_goes_on_with_what_waited_for_it() {
        check(
            9,
            &[3, 13, 2, 13, 4],
            &["3 aside", "recovered from 13", "2", "3 at last", "recovered from 13", "4", "stopped with 0 above 4"],
        );
    }

    #[test]
    fn an_agent_that_panicked_can_be_stopped_at_once() {
        check(9, &[13], &["recovered from 13", "stopped with 0 above 4"]);
    }

    #[test]
    fn panics_that_follow_each_other_make_the_pauses_longer() {
        let mut pause = Pause::default();
        let at_once = Duration::ZERO;
        let pauses: Vec<u128> = (0..12).map(|_| pause.after(at_once).as_millis()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10_000, 10_000]);
        assert_eq!(pause.after(Duration::from_secs(60)).as_millis(), 10);
        assert_eq!(pause.after(at_once).as_millis(), 20);
    }
}
