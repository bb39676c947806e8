//! The process in which a template from a file runs: it reads requests from stdin, one line of JSON each, and answers
//! them on stdout.
//!
//! A template is an untrusted program. minijinja limits its instructions and its output, but neither the memory that a
//! variable takes nor the depth of parsed or printed values, so this process limits them from outside, before it reads
//! anything:
//!
//! | resource | limit | enforced by |
//! | --- | --- | --- |
//! | memory | [`MEMORY_BYTES`] beyond the process's own | `RLIMIT_AS` on Linux; elsewhere its parent monitors it |
//! | stack | [`STACK_BYTES`] | the size of the thread's stack |
//! | time | [`RENDERING_SECONDS`] per rendering | its parent; on Unix also `RLIMIT_CPU`, in case the parent is gone |
//! | system calls | memory, time, the open streams | seccomp on Linux (x86-64, ARM and RISC-V), if the kernel has it |
//! | core dumps | none | `RLIMIT_CORE` on Unix |
//!
//! Exceeding a limit ends the process. Its parent reports that, and starts another when it needs one.

mod confinement;

use std::io::{self, BufRead, BufWriter, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::messages::{Answer, Failure, TemplateRequest};
use super::rendering::Engine;
use super::source::TemplateSource;

/// Memory that a template may use. It holds about ten copies of the conversation, in one form or another.
pub const MEMORY_BYTES: u64 = 256 << 20;
/// Stack that a template may use.
pub const STACK_BYTES: usize = 64 << 20;
/// How long a rendering may take. A long conversation takes milliseconds.
pub const RENDERING_SECONDS: u64 = 5;

/// Serves templates over this process's stdin and stdout, within the limits, until stdin ends.
///
/// # Errors
/// When the thread cannot be started, or a stream breaks.
pub fn serve() -> io::Result<()> {
    let serve = || {
        confinement::confine();
        run(io::stdin().lock(), BufWriter::new(io::stdout().lock()))
    };
    let thread = std::thread::Builder::new().name("template".into()).stack_size(STACK_BYTES).spawn(serve)?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the template's thread ended unexpectedly")))
}

/// Answers requests until there are no more, within the limits already set on the process.
///
/// # Errors
/// When a stream breaks.
pub fn run(input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    let mut engine = None;
    for line in input.lines() {
        let line = line?;
        confinement::allow_processor_seconds(RENDERING_SECONDS);
        let answer = catch_unwind(AssertUnwindSafe(|| answer(&line, &mut engine)));
        let answer = answer.unwrap_or_else(|_| failed("it fails unexpectedly: this is a bug in hone".into()));
        serde_json::to_writer(&mut output, &answer)?;
        output.write_all(b"\n")?;
        output.flush()?;
    }
    Ok(())
}

fn answer(line: &str, engine: &mut Option<Engine>) -> Answer {
    match (serde_json::from_str(line), engine.as_ref()) {
        (Ok(TemplateRequest::Load { text, bos, eos }), _) => {
            let source = TemplateSource { text: text.into_owned(), bos: bos.into_owned(), eos: eos.into_owned() };
            Answer::from(Engine::new(&source).map(|parsed| {
                *engine = Some(parsed);
                String::new()
            }))
        }
        (Ok(request), Some(engine)) => engine.answer(&request),
        (Ok(_), None) => failed("it has not been loaded: this is a bug in hone".into()),
        (Err(error), _) => failed(format!("the conversation cannot be read: {error}")),
    }
}

fn failed(reason: String) -> Answer {
    Answer::Failed(Failure { line: None, reason })
}
