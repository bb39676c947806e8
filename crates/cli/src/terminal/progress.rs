//! Progress on stderr, only on a terminal: bars for transfers, a temporary line while a prompt is processed.

use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hone_app::describe::{remark, verb};
use hone_app::{Activity, LoadListener, Progress, TransferListener};
use hone_models::{Event, Phase};
use hone_protocol::GenerationEvent;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::terminal::Output;

const TICK: Duration = Duration::from_millis(120);

/// Loading that takes less time needs no bar.
const LONG_LOADING: Duration = Duration::from_millis(500);

/// Shows the events of a pull or of a bundle.
pub(crate) struct Transfers {
    output: Output,
    bar: Option<TransferBar>,
}

struct TransferBar {
    phase: Phase,
    file: String,
    bar: ProgressBar,
}

impl Transfers {
    /// No transfers yet.
    pub(crate) fn new(output: Output) -> Transfers {
        Transfers { output, bar: None }
    }

    /// Shows an event.
    pub(crate) fn show(&mut self, event: &Event) {
        match event {
            Event::Progress { phase, file, done, total } => self.advance(*phase, file, *done, *total),
            other => self.remark(&remark(other)),
        }
    }

    fn remark(&mut self, text: &str) {
        self.close();
        self.output.note(text);
    }

    fn advance(&mut self, phase: Phase, file: &str, done: u64, total: Option<u64>) {
        let continues = self.bar.as_ref().is_some_and(|shown| shown.phase == phase && shown.file == file);
        if !continues {
            self.close();
            let bar = transfer(self.output, verb(phase), total).with_position(done);
            // Bytes from an earlier run say nothing about this run's speed.
            bar.reset_eta();
            self.bar = Some(TransferBar { phase, file: file.to_string(), bar });
        }
        if let Some(shown) = &self.bar {
            shown.bar.set_position(done);
        }
    }

    fn close(&mut self) {
        if let Some(shown) = self.bar.take() {
            shown.bar.finish_and_clear();
        }
    }
}

impl Drop for Transfers {
    fn drop(&mut self) {
        self.close();
    }
}

/// A bar that counts steps of one kind.
pub(crate) struct Steps {
    bar: WorkBar,
}

impl Steps {
    /// No steps yet.
    pub(crate) fn new(output: Output, unit: &str) -> Steps {
        let template = format!("{{bar:30}} {{pos}}/{{len}} {unit} {{eta}} {{msg}}");
        Steps { bar: WorkBar::new(bar(output, "", Some(0), &template)) }
    }

    /// Shows that `done` of `total` are done.
    pub(crate) fn show(&self, done: usize, total: usize, remark: &str) {
        let bar = &self.bar.bar;
        bar.set_length(total as u64);
        bar.set_position(done as u64);
        bar.set_message(remark.to_string());
    }

    /// Removes the bar.
    pub(crate) fn clear(&self) {
        self.bar.bar.finish_and_clear();
    }
}

/// A bar for a model that is loaded, which disappears with the value.
pub(crate) struct Loading {
    output: Output,
    since: Instant,
    bar: Option<ProgressBar>,
}

impl Loading {
    /// Nothing is loaded yet.
    pub(crate) fn begin(output: Output) -> Loading {
        Loading { output, since: Instant::now(), bar: None }
    }

    /// Shows that `done` of `total` bytes are loaded, if it takes long enough.
    pub(crate) fn show(&mut self, done: u64, total: u64) {
        if self.bar.is_none() && self.since.elapsed() < LONG_LOADING {
            return;
        }
        let output = self.output;
        let begin = || bar(output, "loading the model", Some(total), "{msg} {wide_bar} {percent} %");
        self.bar.get_or_insert_with(begin).set_position(done);
    }
}

impl Progress for Output {
    fn note(&self, text: &str) {
        Output::note(*self, text);
    }

    fn error(&self, text: &str) {
        Output::error(*self, text);
    }

    fn transfers(&self) -> TransferListener {
        let mut transfers = Transfers::new(*self);
        Box::new(move |event| transfers.show(event))
    }

    fn loading(&self) -> LoadListener {
        let loading = Mutex::new(Loading::begin(*self));
        Box::new(move |done, total| loading.lock().unwrap_or_else(PoisonError::into_inner).show(done, total))
    }
}

/// The bar of some work, whose message also says how much of a model is loaded.
struct WorkBar {
    bar: ProgressBar,
    /// The bar's own message, while another is shown.
    message: RefCell<Option<String>>,
}

impl WorkBar {
    fn new(bar: ProgressBar) -> WorkBar {
        WorkBar { bar, message: RefCell::default() }
    }

    /// Shows the loading progress of an event; any other event brings the bar's own message back.
    fn hear(&self, event: &GenerationEvent) {
        let mut message = self.message.borrow_mut();
        match event {
            GenerationEvent::Loading { done, total } => {
                message.get_or_insert_with(|| self.bar.message());
                let percent = (100 * done).checked_div(*total).unwrap_or(100);
                self.bar.set_message(format!("loading the model: {percent} %"));
            }
            _ => message.take().into_iter().for_each(|message| self.bar.set_message(message)),
        }
    }
}

impl Activity for Steps {
    fn advance(&self, done: usize, total: usize, remark: &str) {
        self.show(done, total, remark);
    }

    fn hear(&self, event: &GenerationEvent) {
        self.bar.hear(event);
    }
}

/// An animated line for work of unknown length, which disappears with the value.
pub(crate) struct Spinner {
    bar: WorkBar,
}

impl Spinner {
    /// Shows `label`.
    pub(crate) fn new(output: Output, label: &str) -> Spinner {
        Spinner { bar: WorkBar::new(spinner(output, label)) }
    }
}

impl Activity for Spinner {
    fn advance(&self, _: usize, _: usize, _: &str) {}

    fn hear(&self, event: &GenerationEvent) {
        self.bar.hear(event);
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.bar.bar.finish_and_clear();
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}

/// A bar for a prompt of `total` tokens.
pub(crate) fn prompt(output: Output, total: u64) -> ProgressBar {
    bar(output, "reading the prompt", Some(total), "{msg} {bar:30} {pos}/{len} tokens {eta}")
}

/// An animated line for work of unknown length.
pub(crate) fn spinner(output: Output, label: &str) -> ProgressBar {
    let spinner = bar(output, label, None, "{spinner} {msg}");
    spinner.enable_steady_tick(TICK);
    spinner
}

/// A bar for bytes that shows rate and remaining time.
fn transfer(output: Output, label: &str, total: Option<u64>) -> ProgressBar {
    let template = match total {
        Some(_) => "{msg} {wide_bar} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}",
        None => "{msg} {spinner} {decimal_bytes} {decimal_bytes_per_sec}",
    };
    bar(output, label, total, template)
}

fn bar(output: Output, label: &str, total: Option<u64>, template: &str) -> ProgressBar {
    // The templates are constants of this file; the default style replaces an invalid one.
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(total, target(output)).with_style(style).with_message(label.to_string())
}

fn target(output: Output) -> ProgressDrawTarget {
    if output.stderr_is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_that_is_loaded_soon_needs_no_bar() {
        let mut loading = Loading::begin(Output::plain());
        loading.show(1, 4);
        assert!(loading.bar.is_none());
        loading.since = Instant::now().checked_sub(LONG_LOADING).unwrap();
        loading.show(3, 4);
        let bar = loading.bar.as_ref().unwrap();
        assert_eq!((bar.position(), bar.length()), (3, Some(4)));
    }

    #[test]
    fn a_bar_says_how_much_of_a_model_is_loaded_until_something_else_happens() {
        let spinner = Spinner::new(Output::plain(), "judging");
        for (done, shown) in [(1, "loading the model: 25 %"), (4, "loading the model: 100 %")] {
            spinner.hear(&GenerationEvent::Loading { done, total: 4 });
            assert_eq!(spinner.bar.bar.message(), shown);
        }
        spinner.hear(&GenerationEvent::Prefill { done: 0, total: 9 });
        assert_eq!(spinner.bar.bar.message(), "judging");
    }
}
