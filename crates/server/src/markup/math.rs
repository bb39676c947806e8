//! LaTeX formulas as MathML, which browsers render natively.
//!
//! A formula comes from a model: its length and its commands are limited, definitions are refused since they can grow
//! without bounds, and it is parsed on a thread with a stack for the deepest nesting within these limits.

use std::convert::Infallible;
use std::thread;

use pulldown_latex::config::{DisplayMode, RenderConfig};
use pulldown_latex::mathml::write_mathml;
use pulldown_latex::{Parser, Storage};

/// The longest formula, in bytes, and the maximum number of its commands and groups.
pub(super) const LONGEST: usize = 8 << 10;
const MOST_COMMANDS: usize = 500;
/// More than ten times the stack for the deepest nesting that [`MOST_COMMANDS`] allows.
const STACK: usize = 16 << 20;

/// Commands that are refused: definitions, and one on which the parser fails.
const REFUSED: [&str; 7] = ["\\def", "\\gdef", "\\edef", "\\newcommand", "\\renewcommand", "\\let", "\\char"];

/// Commands that models use and the parser does not know.
const DEFINITIONS: &str =
    r"\def\boxed#1{\begin{array}{|c|}\hline #1\\\hline\end{array}}\def\tag#1{\qquad(\mathrm{#1})}";

/// A formula as MathML; `None` if it is invalid or too long.
pub(super) fn mathml_of(latex: &str, mode: DisplayMode) -> Option<String> {
    let n_commands = latex.bytes().filter(|byte| b"\\{^_".contains(byte)).count();
    let is_refused = REFUSED.iter().any(|command| latex.contains(command));
    if latex.trim().is_empty() || latex.len() > LONGEST || n_commands > MOST_COMMANDS || is_refused {
        return None;
    }
    let render = || rendered(&format!("{DEFINITIONS}{latex}"), mode);
    thread::scope(|scope| thread::Builder::new().stack_size(STACK).spawn_scoped(scope, render).ok()?.join().ok()?)
}

fn rendered(latex: &str, mode: DisplayMode) -> Option<String> {
    let storage = Storage::new();
    let events: Vec<_> = Parser::new(latex, &storage).collect::<Result<_, _>>().ok()?;
    let config = RenderConfig { display_mode: mode, ..RenderConfig::default() };
    let mut html = Vec::new();
    write_mathml(&mut html, events.into_iter().map(Ok::<_, Infallible>), config).ok()?;
    String::from_utf8(html).ok()
}
