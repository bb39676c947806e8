//! Tasks from the first prompt to the workspace: a scripted model writes the text, and real tools, contained, evaluate
//! it. One story has the built-in model write, one kills the process again and again.

mod built_in;
#[cfg(unix)]
mod kills;
#[cfg(unix)]
mod languages;
mod node;
mod repository;
mod stage;
