//! Progress on stderr, only where somebody watches: bars for downloads, a passing line while a prompt is read.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::Output;

const TICK: Duration = Duration::from_millis(120);

/// A bar for a file of `total` bytes that shows rate and time left.
pub(crate) fn transfer(output: Output, label: &str, total: u64) -> ProgressBar {
    let template = "{msg} {wide_bar} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}";
    bar(output, label, total, template)
}

/// A bar for a prompt of `total` tokens.
pub(crate) fn prompt(output: Output, total: u64) -> ProgressBar {
    bar(output, "reading the prompt", total, "{msg} {bar:30} {pos}/{len} tokens {eta}")
}

/// A line that moves while something of unknown length goes on.
pub(crate) fn spinner(output: Output, label: &str) -> ProgressBar {
    let spinner = ProgressBar::with_draw_target(None, target(output)).with_message(label.to_string());
    spinner.enable_steady_tick(TICK);
    spinner
}

fn bar(output: Output, label: &str, total: u64, template: &str) -> ProgressBar {
    // The templates are constants of this file, and the default style stands in for one that is wrong.
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(total), target(output)).with_style(style).with_message(label.to_string())
}

fn target(output: Output) -> ProgressDrawTarget {
    if output.stderr_is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() }
}
