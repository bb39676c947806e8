//! Logs of every crate, on stderr: warnings always, more with `--verbose`, and what `HONE_LOG` asks for above both.

use tracing_subscriber::EnvFilter;

use crate::failure::usage;
use crate::output::Output;

/// Starts to log.
///
/// # Errors
/// When `HONE_LOG` is no filter.
pub(crate) fn start(verbose: u8, output: Output) -> anyhow::Result<()> {
    let wanted = std::env::var("HONE_LOG").ok().filter(|filter| !filter.is_empty());
    let filter = match wanted {
        Some(filter) => EnvFilter::try_new(&filter).map_err(|error| {
            usage(format!("HONE_LOG is {filter:?}, which is no filter such as hone=debug: {error}"))
        })?,
        None => EnvFilter::new(filter_of(verbose)),
    };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(output.colors_stderr())
        .with_target(verbose > 0)
        .without_time();
    subscriber.try_init().map_err(|error| anyhow::anyhow!("cannot start to log: {error}"))
}

/// The filter for how often `--verbose` was given.
fn filter_of(verbose: u8) -> &'static str {
    match verbose {
        0 => "warn",
        1 => "warn,hone=debug,hone_engine=debug,hone_models=debug",
        _ => "trace",
    }
}
