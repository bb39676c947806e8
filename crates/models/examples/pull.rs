//! Pulls a model into the store and prints its location: `cargo run -p hone-models --example pull -- smollm2:135m`.
//!
//! `HONE_HOME` names the store's folder. A short example of how a program uses this crate.

use std::{error::Error, time::Instant};

use hone_models::{Event, PullOptions, Store, data_folder};
use hone_protocol::LocateModel;

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).ok_or("name a model, such as smollm2:135m")?;
    let store = Store::open(&data_folder()?)?;
    let begun = Instant::now();
    let mut last = None;
    let pulled = store.pull(&name, &PullOptions::from_environment(), &mut |event| match event {
        Event::Progress { phase, .. } if last == Some(*phase) => {}
        Event::Progress { phase, file, .. } => {
            last = Some(*phase);
            eprintln!("{phase:?} {file}");
        }
        other => eprintln!("{other:?}"),
    })?;
    println!("{} from {} in {:.1} s", pulled.model.name, pulled.model.source, begun.elapsed().as_secs_f64());
    for file in store.show(&name)?.files {
        println!("{}: {} bytes", file.location.path.display(), file.location.length);
    }
    if let Ok(file) = store.locate(&name) {
        println!("a GGUF at byte {} of {}", file.offset, file.path.display());
    }
    Ok(())
}
