//! `hone memory export` and `hone memory import`: answers with their vectors, as lines of JSON.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use hone_files::staged_file;
use hone_memory::MemoryStore;
use serde::Serialize;

use crate::arguments::{MemoryExportArguments, MemoryImportArguments};
use crate::failure::Outcome;
use crate::invocation::Invocation;

/// The output of `--json` for an export to a file.
#[derive(Serialize)]
struct JsonExported {
    exported: u64,
}

/// The output of `--json` for an import.
#[derive(Serialize)]
struct JsonImported {
    imported: u64,
    already_there: u64,
}

pub(super) fn export(
    app: &Invocation,
    store: &MemoryStore,
    arguments: &MemoryExportArguments,
) -> anyhow::Result<Outcome> {
    let Some(file) = arguments.file.as_ref().filter(|file| file.as_os_str() != "-") else {
        // On a terminal, an export is model output like any other and is made safe.
        if app.output.stdout_is_terminal {
            let mut lines = Vec::new();
            store.export(&mut lines)?;
            app.output.print_piece(&String::from_utf8_lossy(&lines))?;
        } else {
            store.export(BufWriter::new(io::stdout().lock()))?;
        }
        return Ok(Outcome::Done);
    };
    let exported = export_to_file(store, file).with_context(|| format!("cannot export to {}", file.display()))?;
    if arguments.json.json {
        app.output.print_json(&JsonExported { exported })?;
    } else {
        app.output.note(&format!("exported {exported} answers to {}", file.display()));
    }
    Ok(Outcome::Done)
}

/// Writes a new file, and renames it over an existing one once it is complete.
fn export_to_file(store: &MemoryStore, file: &Path) -> anyhow::Result<u64> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut fresh = staged_file(folder, "export")?;
    let mut writer = BufWriter::new(&mut fresh);
    let exported = store.export(&mut writer)?;
    writer.flush()?;
    drop(writer);
    fresh.as_file().sync_all()?;
    fresh.persist(file)?;
    Ok(exported)
}

pub(super) fn import(
    app: &Invocation,
    store: &MemoryStore,
    arguments: &MemoryImportArguments,
) -> anyhow::Result<Outcome> {
    let file = &arguments.file;
    let imported = if file.as_os_str() == "-" {
        store.import(io::stdin().lock())?
    } else {
        let opened = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
        store.import(BufReader::new(opened)).with_context(|| format!("cannot import {}", file.display()))?
    };
    let imported = JsonImported { imported: imported.added, already_there: imported.already_there };
    if arguments.json.json {
        app.output.print_json(&imported)?;
    } else {
        let JsonImported { imported, already_there } = imported;
        app.output.print_line(&format!("imported {imported} answers; {already_there} were already there"))?;
    }
    Ok(Outcome::Done)
}
