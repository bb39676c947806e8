//! This process on the bus.

use hone_fleet::WorkerState;
use hone_protocol::Timestamp;

/// This process, which was started with this command, as it reports itself on the bus.
pub fn own_state(command: &str) -> WorkerState {
    let (machine, process, since) = (machine_name(), std::process::id(), Timestamp::now());
    WorkerState {
        // Containers may have the same names and numbers.
        name: format!("{machine}-{process}-{:04x}", since.0 & 0xffff),
        machine,
        process,
        command: command.to_owned(),
        since,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..WorkerState::default()
    }
}

/// The machine's name, from which the names of its processes are made: letters, digits, `-` and `_`.
fn machine_name() -> String {
    let name = sysinfo::System::host_name().unwrap_or_default();
    let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).take(32).collect();
    if plain.is_empty() { "machine".to_owned() } else { plain }
}
