//! Bundles: executables with models inside. `hone bundle` writes one, and at start hone checks whether it is one.
//!
//! The models are appended to the executable. Each file starts at a multiple of 64 KiB, so that it can be memory-mapped
//! in place; an index with the positions and a trailer of fixed size follow (see [`mod@format`]). Systems load an
//! executable by its header and ignore trailing bytes, so the program itself is unchanged. Bundling from a bundle takes
//! only its program: payloads are replaced, never stacked.
//!
//! A signature over the whole file (as on macOS and Windows) becomes invalid; sign the bundle, not the program.

mod format;

use std::{
    collections::HashSet,
    fs::File,
    io::{self, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use hone_files::staged_file;
use hone_protocol::ModelFile;
use thiserror::Error;

use self::format::{ALIGNMENT, Index, IndexFile, IndexModel, Trailer};
use crate::{
    digest::{CopyError, Hashing},
    installed::{InstalledFile, InstalledModel, Place, open_region},
    progress::{Event, Phase, ProgressSink},
};

/// The models inside an executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// The executable.
    pub path: PathBuf,
    /// The models in it.
    pub models: Vec<InstalledModel>,
}

/// Why a bundle cannot be read or written.
#[derive(Debug, Error)]
pub enum BundleError {
    /// The executable carries an incomplete payload.
    #[error(
        "{path}: the bundled models are damaged: {reason}; download the file again or recreate it with `hone bundle`"
    )]
    Damaged {
        /// The executable.
        path: PathBuf,
        /// The kind of damage.
        reason: String,
    },
    /// A model to bundle differs from its installed state.
    #[error("model `{name}`: {file} has changed since it was installed: run `hone rm {name}` and `hone pull {name}`")]
    Changed {
        /// The model.
        name: String,
        /// Its file.
        file: PathBuf,
    },
    /// The list of models to bundle is empty or has duplicates.
    #[error("nothing to bundle: {0}")]
    Selection(String),
    /// There is not enough disk space.
    #[error(
        "the disk of {folder} has {available} bytes free, but the bundle needs {needed}: free some space, or name an output on another disk"
    )]
    NoSpace {
        /// The folder to write the bundle to.
        folder: PathBuf,
        /// The size of the bundle in bytes.
        needed: u64,
        /// The free bytes.
        available: u64,
    },
    /// A file could not be read or written.
    #[error("{path} cannot be read or written")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl Bundle {
    /// The models inside `executable`; `None` for a plain program.
    ///
    /// Reads the trailer and the index, not the models; nothing larger than the index (1 MiB at most) is allocated.
    ///
    /// # Errors
    /// When the file cannot be read, or its payload is cut off or inconsistent.
    pub fn open(executable: &Path) -> Result<Option<Self>, BundleError> {
        let mut file = File::open(executable).map_err(|error| io_error(executable, error))?;
        match format::read(&mut file) {
            Ok(Some((_, index))) => {
                Ok(Some(Self { path: executable.to_owned(), models: models_of(executable, index) }))
            }
            Ok(None) => Ok(None),
            Err(format::FormatError::Damaged(reason)) => {
                Err(BundleError::Damaged { path: executable.to_owned(), reason })
            }
            Err(format::FormatError::Io(error)) => Err(io_error(executable, error)),
        }
    }

    /// The bundled model with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&InstalledModel> {
        self.models.iter().find(|model| model.name == name)
    }
}

/// Writes an executable copy of `executable` with `models` inside to `output`.
///
/// The output appears under its name only once complete. An existing payload of `executable` is left out.
///
/// # Errors
/// When there is nothing to bundle, a file cannot be read or written, or a model differs from its installed state.
pub fn write_bundle(
    executable: &Path,
    models: &[InstalledModel],
    output: &Path,
    progress: ProgressSink<'_>,
) -> Result<(), BundleError> {
    check_selection(models)?;
    let folder = output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let staged = staged_file(folder, "bundle").map_err(|error| io_error(folder, error))?;
    let program = ModelFile::new(executable, 0, program_length(executable)?);
    check_space(folder, program.length + models.iter().map(InstalledModel::size).sum::<u64>())?;
    let mut writer = Writer { output: BufWriter::new(staged.as_file()), path: output, position: 0, progress };
    writer.copy(&program)?;
    writer.payload(models)?;
    let failed = |error| io_error(output, error);
    writer.output.flush().map_err(failed)?;
    drop(writer);
    staged.as_file().sync_all().map_err(failed)?;
    make_executable(staged.path()).map_err(failed)?;
    staged.persist(output).map_err(|error| failed(error.error))?;
    Ok(())
}

fn check_space(folder: &Path, needed: u64) -> Result<(), BundleError> {
    let available = fs4::available_space(folder).map_err(|error| io_error(folder, error))?;
    let folder = folder.to_owned();
    if available < needed { Err(BundleError::NoSpace { folder, needed, available }) } else { Ok(()) }
}

/// Writes the parts of a bundle in order and records their positions.
struct Writer<'a> {
    output: BufWriter<&'a File>,
    path: &'a Path,
    position: u64,
    progress: ProgressSink<'a>,
}

impl Writer<'_> {
    fn payload(&mut self, models: &[InstalledModel]) -> Result<(), BundleError> {
        self.align()?;
        let payload_start = self.position;
        self.write(&format::header(payload_start))?;
        let mut index = Index { models: Vec::with_capacity(models.len()) };
        for model in models {
            let files = model.files.iter().map(|file| self.model_file(model, file)).collect::<Result<_, _>>()?;
            index.models.push(IndexModel { name: model.name.clone(), source: model.source.clone(), files });
        }
        let text = index.to_bytes().map_err(|error| io_error(self.path, error))?;
        let index_offset = self.position;
        self.write(&text)?;
        self.write(&Trailer::new(payload_start, index_offset, &text).to_bytes())
    }

    fn model_file(&mut self, model: &InstalledModel, file: &InstalledFile) -> Result<IndexFile, BundleError> {
        self.align()?;
        let offset = self.position;
        let digest = self.copy(&file.location)?;
        if file.sha256.as_ref().is_some_and(|expected| *expected != digest.sha256) {
            return Err(BundleError::Changed { name: model.name.clone(), file: file.location.path.clone() });
        }
        let (name, unchecked) = (file.name.clone(), file.unchecked);
        Ok(IndexFile { name, sha256: digest.sha256, offset, length: digest.size, unchecked, blocks: digest.blocks })
    }

    fn copy(&mut self, from: &ModelFile) -> Result<crate::digest::Digest, BundleError> {
        let failed = |error| io_error(&from.path, error);
        let mut bytes = open_region(from).map_err(failed)?;
        let name = from.path.display().to_string();
        let progress = &mut *self.progress;
        let mut report = |done| {
            let (file, total) = (name.clone(), Some(from.length));
            progress(&Event::Progress { phase: Phase::Copying, file, done, total });
        };
        let mut hashing = Hashing::default();
        hashing.copy(&mut bytes, &mut self.output, &mut report).map_err(|error| match error {
            CopyError::Read(error) => failed(error),
            CopyError::Write(error) => io_error(self.path, error),
        })?;
        let digest = hashing.digest();
        if digest.size != from.length {
            return Err(failed(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter")));
        }
        self.position += digest.size;
        Ok(digest)
    }

    fn align(&mut self) -> Result<(), BundleError> {
        let padding = self.position.next_multiple_of(ALIGNMENT) - self.position;
        self.position += padding;
        io::copy(&mut io::repeat(0).take(padding), &mut self.output).map_err(|error| io_error(self.path, error))?;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), BundleError> {
        self.position += bytes.len() as u64;
        self.output.write_all(bytes).map_err(|error| io_error(self.path, error))
    }
}

fn check_selection(models: &[InstalledModel]) -> Result<(), BundleError> {
    if models.is_empty() {
        return Err(BundleError::Selection("name at least one model".to_owned()));
    }
    let mut names = HashSet::new();
    match models.iter().find(|model| !names.insert(&model.name)) {
        Some(model) => Err(BundleError::Selection(format!("the model `{}` was named twice", model.name))),
        None => Ok(()),
    }
}

/// The length in bytes of the program in `executable`.
fn program_length(executable: &Path) -> Result<u64, BundleError> {
    let mut file = File::open(executable).map_err(|error| io_error(executable, error))?;
    match format::read(&mut file) {
        Ok(Some((trailer, _))) => Ok(trailer.payload_start),
        Ok(None) => Ok(file.metadata().map_err(|error| io_error(executable, error))?.len()),
        Err(format::FormatError::Damaged(reason)) => Err(BundleError::Damaged { path: executable.to_owned(), reason }),
        Err(format::FormatError::Io(error)) => Err(io_error(executable, error)),
    }
}

fn models_of(executable: &Path, index: Index) -> Vec<InstalledModel> {
    let file = |file: IndexFile| InstalledFile {
        name: file.name,
        sha256: Some(file.sha256),
        unchecked: file.unchecked,
        blocks: file.blocks,
        location: ModelFile::new(executable, file.offset, file.length),
    };
    let model = |model: IndexModel| InstalledModel {
        name: model.name,
        source: model.source,
        added: None,
        place: Place::Bundle,
        files: model.files.into_iter().map(file).collect(),
    };
    index.models.into_iter().map(model).collect()
}

#[cfg(unix)]
fn make_executable(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn make_executable(_path: &Path) -> io::Result<()> {
    Ok(())
}

fn io_error(path: &Path, source: io::Error) -> BundleError {
    BundleError::Io { path: path.to_owned(), source }
}
