//! A worker's metrics for Prometheus, on a separate port.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::{io, thread};

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use hone_app::fleet::WorkerState;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::operators::OPENMETRICS;

/// Serves a worker's metrics at `address` while the process runs; returns the address.
///
/// # Errors
/// When the address cannot be used, or the thread cannot be started.
pub fn serve_worker_metrics(
    address: SocketAddr,
    state: impl Fn() -> WorkerState + Send + Sync + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let state = Arc::new(state);
    let metrics = move || async move { answer(&state()) };
    let router = Router::new().route("/metrics", get(metrics)).route("/healthz", get(async || "ok\n"));
    thread::Builder::new().name("metrics".to_owned()).spawn(move || {
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            axum::serve(listener, router).await
        })
    })?;
    Ok(address)
}

fn answer(state: &WorkerState) -> axum::response::Response {
    let mut text = String::new();
    match encode(&mut text, &figures(state)) {
        Ok(()) => ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// The metrics of a worker.
fn figures(state: &WorkerState) -> Registry {
    let mut registry = Registry::with_prefix("hone_worker");
    let counters = [
        ("finished", "Pieces of work that are finished", state.finished),
        ("failed", "Pieces of work that it could not do", state.failed),
        ("tokens", "Tokens that it has generated for others", state.tokens),
    ];
    for (name, help, value) in counters {
        registry.register(name, help, ConstCounter::new(value));
    }
    for (name, help, value) in [
        ("busy", "Pieces that it is working on", state.busy),
        ("slots", "Pieces that it can work on at a time", state.slots),
    ] {
        registry.register(name, help, ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)));
    }
    let since = state.since.0 as f64 / 1000.0;
    registry.register_with_unit("started", "When it started, since 1970", Unit::Seconds, ConstGauge::new(since));
    registry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_says_what_it_has_done() {
        let state = WorkerState { finished: 3, slots: 8, tokens: 40, ..WorkerState::default() };
        let mut text = String::new();
        encode(&mut text, &figures(&state)).unwrap();
        for line in ["hone_worker_finished_total 3", "hone_worker_slots 8", "hone_worker_tokens_total 40"] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
