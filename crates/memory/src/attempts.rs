//! Repeated attempts at a write that other processes may forestall.

use std::thread;
use std::time::Duration;

/// The number of attempts.
const MOST_ATTEMPTS: u32 = 10;

/// The pause after the first failed attempt; each further one is twice as long.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// An item for every attempt, with a pause before each but the first.
pub(crate) fn attempts() -> impl Iterator<Item = ()> {
    (0..MOST_ATTEMPTS).map(|attempt| {
        if let Some(failed) = attempt.checked_sub(1) {
            thread::sleep(SHORTEST_PAUSE.saturating_mul(1 << failed));
        }
    })
}
