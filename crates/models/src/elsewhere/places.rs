//! The model folders of other programs.

use std::{
    collections::HashMap,
    ffi::OsString,
    path::{Path, PathBuf},
};

use hone_files::read_regular;

use super::Program;

/// The folders of each program; they need not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places(HashMap<Program, Vec<PathBuf>>);

impl Places {
    /// The places on this machine, by the variables that these programs read (`OLLAMA_MODELS`, `LLAMA_CACHE`,
    /// `HF_HUB_CACHE`, `HF_HOME`) and their defaults.
    #[must_use]
    pub fn from_environment() -> Places {
        Places::resolve(|name| std::env::var_os(name), std::env::home_dir(), std::env::consts::OS)
    }

    /// The folders of a program, in order.
    #[must_use]
    pub fn of(&self, program: Program) -> &[PathBuf] {
        self.0.get(&program).map_or(&[], Vec::as_slice)
    }

    /// The places on a system with these variables and this home folder.
    #[doc(hidden)]
    #[must_use]
    pub fn resolve(variable: impl Fn(&str) -> Option<OsString>, home: Option<PathBuf>, system: &str) -> Places {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = home.filter(|folder| folder.is_absolute());
        let at_home = |below: &str| home.as_ref().map(|home| home.join(below));
        let caches = match system {
            "windows" => set("LOCALAPPDATA").or_else(|| at_home("AppData/Local")),
            "macos" => at_home("Library/Caches"),
            _ => set("XDG_CACHE_HOME").filter(|folder| folder.is_absolute()).or_else(|| at_home(".cache")),
        };
        // The Linux installer's service has its own home.
        let of_service = (system == "linux").then(|| PathBuf::from("/usr/share/ollama/.ollama/models"));
        let ollama =
            set("OLLAMA_MODELS").map_or_else(|| vec![at_home(".ollama/models"), of_service], |set| vec![Some(set)]);
        let of_lm_studio = at_home(".lmstudio-home-pointer").and_then(|pointer| pointed_to(&pointer));
        let lm_studio = vec![of_lm_studio, at_home(".lmstudio/models"), at_home(".cache/lm-studio/models")];
        let llama_cpp = vec![set("LLAMA_CACHE").or_else(|| caches.as_ref().map(|caches| caches.join("llama.cpp")))];
        let hub = set("HF_HUB_CACHE").or_else(|| Some(set("HF_HOME")?.join("hub")));
        let hugging_face = vec![hub.or_else(|| at_home(".cache/huggingface/hub"))];
        let places = [ollama, lm_studio, llama_cpp, hugging_face].map(|places| places.into_iter().flatten().collect());
        Places(Program::ALL.into_iter().zip(places).collect())
    }
}

/// The longest file that names a folder, in bytes.
const LONGEST_POINTER: u64 = 64 << 10;

/// The folder of models named by this file in LM Studio's own folder.
fn pointed_to(pointer: &Path) -> Option<PathBuf> {
    let folder = PathBuf::from(String::from_utf8(read_regular(pointer, LONGEST_POINTER).ok()?).ok()?.trim());
    folder.is_absolute().then(|| folder.join("models"))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn check(variables: &[(&str, &str)], system: &str, program: Program, expected: &[&str]) {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        let places = Places::resolve(find, Some("/home/me".into()), system);
        let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
        assert_eq!(places.of(program), expected, "{program:?} on {system}");
    }

    #[test]
    fn the_places_of_each_system_are_known() {
        let of_linux = ["/home/me/.ollama/models", "/usr/share/ollama/.ollama/models"];
        check(&[], "linux", Program::Ollama, &of_linux);
        check(&[], "macos", Program::Ollama, &of_linux[..1]);
        check(&[("OLLAMA_MODELS", "/m")], "linux", Program::Ollama, &["/m"]);
        check(&[], "linux", Program::LlamaCpp, &["/home/me/.cache/llama.cpp"]);
        check(&[], "macos", Program::LlamaCpp, &["/home/me/Library/Caches/llama.cpp"]);
        check(&[("LOCALAPPDATA", "/local")], "windows", Program::LlamaCpp, &["/local/llama.cpp"]);
        check(&[("HF_HOME", "/hf")], "linux", Program::HuggingFace, &["/hf/hub"]);
    }
}
