//! The store of conversations: a folder with one JSON file each, replaced by renaming a complete new file over the old
//! one, or the database in which memory is kept.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use hone_files::{create_private_folder, make_private, open_private, replace, write_new};
use hone_memory::{Documents, MemoryStore, Update};
use hone_protocol::{Branches, OwnerId, Timestamp};
use serde_json::Value;
use time::Date;

use super::names::{as_file_name, check_name, fresh_name, of_file_name};
use super::session::{Conversation, FORMAT};

/// The name of the last single question. It is not a conversation, so that scripts do not fill the list.
const SINGLE: &str = ".single";

/// Saved conversations.
#[derive(Clone)]
pub struct ConversationStore {
    place: Place,
}

#[derive(Clone)]
enum Place {
    /// A folder, which need not exist.
    Folder(PathBuf),
    Database(Documents),
}

impl ConversationStore {
    /// The conversations in `folder`, which need not exist.
    pub fn new(folder: PathBuf) -> ConversationStore {
        ConversationStore { place: Place::Folder(folder) }
    }

    /// The conversations in the database of a memory.
    pub fn in_database(memory: &MemoryStore) -> ConversationStore {
        ConversationStore { place: Place::Database(memory.documents("conversations")) }
    }

    /// The conversations of an owner; those of a server key are in a folder of their own.
    pub fn of(&self, owner: Option<OwnerId>) -> ConversationStore {
        let Some(owner) = owner.map(|owner| owner.to_string()) else { return self.clone() };
        let place = match &self.place {
            Place::Folder(folder) => Place::Folder(folder.join(owner)),
            Place::Database(documents) => Place::Database(documents.folder(&owner)),
        };
        ConversationStore { place }
    }

    /// The keys of the server that have conversations here.
    ///
    /// # Errors
    /// When the database cannot be reached.
    pub fn owners(&self) -> anyhow::Result<Vec<OwnerId>> {
        let names: Vec<String> = match &self.place {
            Place::Folder(folder) => {
                let items = std::fs::read_dir(folder).into_iter().flatten().flatten();
                items.filter_map(|item| item.file_name().into_string().ok()).collect()
            }
            Place::Database(documents) => documents.folders()?,
        };
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// Writes a saved conversation; returns whether it was written. One that another process has removed or renamed is
    /// not, unless the database cannot be reached. Exchanges that another process has added to the saved version stay,
    /// as branches.
    ///
    /// # Errors
    /// When the saved version cannot be read, or the new one cannot be written; the saved one is then kept.
    pub fn save(&self, name: &str, conversation: &Conversation) -> anyhow::Result<bool> {
        check_name(name)?;
        let is_written = match &self.place {
            Place::Folder(folder) => {
                let _writing = lock(folder);
                let saved = self.read(name)?;
                let merged = saved.map(|saved| conversation.clone().with_others(saved));
                merged.map(|merged| self.write(name, &merged)).transpose()?.is_some()
            }
            Place::Database(documents) => {
                let merged = |saved: Value| {
                    let saved = checked(serde_json::from_value(saved), || in_database(name))?;
                    anyhow::Ok(serde_json::to_value(conversation.clone().with_others(saved))?)
                };
                documents.edit(name, merged).with_context(|| format!("cannot save the conversation {name:?}"))?
            }
        };
        self.forget_single();
        Ok(is_written)
    }

    /// Writes a new conversation, unless the name is taken; returns whether it was written. Several processes may begin
    /// one at the same time.
    ///
    /// # Errors
    /// When the name is not valid for a file, or it cannot be written.
    pub fn save_new(&self, name: &str, conversation: &Conversation) -> anyhow::Result<bool> {
        check_name(name)?;
        let is_written = match &self.place {
            Place::Folder(folder) => {
                let path = path_of(folder, name);
                let failure = || format!("cannot save the conversation as {}", path.display());
                prepare(folder).with_context(failure)?;
                let _writing = lock(folder);
                let written = write_new(&path, "conversation", |file| write_to(file, conversation));
                written.with_context(failure)?
            }
            Place::Database(documents) => {
                let saved = documents.save_new(name, serde_json::to_value(conversation)?);
                saved.with_context(|| format!("cannot save the conversation {name:?}"))? != Update::Missing
            }
        };
        self.forget_single();
        Ok(is_written)
    }

    /// Keeps a single question and its answer in place of the previous one. It is not listed.
    ///
    /// # Errors
    /// When it cannot be written; the previous one is then kept.
    pub fn keep_single(&self, conversation: &Conversation) -> anyhow::Result<()> {
        self.write(SINGLE, conversation)
    }

    /// The last single question with its answer, and when it was saved; `None` if there is none.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn single(&self) -> anyhow::Result<Option<(SystemTime, Conversation)>> {
        let Some(conversation) = self.read(SINGLE)? else { return Ok(None) };
        let written = match &self.place {
            Place::Folder(folder) => {
                let path = path_of(folder, SINGLE);
                let written = path.metadata().and_then(|metadata| metadata.modified());
                written.with_context(|| format!("cannot read {}", path.display()))?
            }
            Place::Database(documents) => {
                let entries = documents.entries()?;
                let written = entries.into_iter().find(|(name, _)| name == SINGLE).map(|(_, written)| time_of(written));
                written.unwrap_or(SystemTime::UNIX_EPOCH)
            }
        };
        Ok(Some((written, conversation)))
    }

    /// Reads a conversation.
    ///
    /// # Errors
    /// When it does not exist, or cannot be parsed.
    pub fn load(&self, name: &str) -> anyhow::Result<Conversation> {
        check_name(name)?;
        self.read(name)?.with_context(|| format!("no conversation {name:?} is saved"))
    }

    /// The names of all conversations, the most recently written first.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn names(&self) -> anyhow::Result<Vec<String>> {
        Ok(self.entries()?.into_iter().map(|(_, name)| name).collect())
    }

    /// The time when each conversation was written, and its name, the most recently written first.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn entries(&self) -> anyhow::Result<Vec<(SystemTime, String)>> {
        let mut found = match &self.place {
            Place::Folder(folder) => entries_in(folder).with_context(|| format!("cannot list {}", folder.display()))?,
            Place::Database(documents) => {
                let entries = documents.entries().context("cannot list the conversations")?;
                let listed = entries.into_iter().filter(|(name, _)| !name.starts_with('.'));
                listed.map(|(name, written)| (time_of(written), name)).collect()
            }
        };
        found.sort_by(|a, b| b.cmp(a));
        Ok(found)
    }

    /// Gives a conversation another name, which must not be taken.
    ///
    /// # Errors
    /// When a name is not valid for a file, or it cannot be renamed.
    pub fn rename(&self, name: &str, new_name: &str) -> anyhow::Result<()> {
        check_name(name)?;
        check_name(new_name)?;
        match &self.place {
            Place::Folder(folder) => {
                let (old, new) = (path_of(folder, name), path_of(folder, new_name));
                let _writing = lock(folder);
                if new.exists() {
                    bail!("a conversation {new_name:?} is saved already: choose another name");
                }
                std::fs::rename(&old, &new).with_context(|| format!("cannot rename {}", old.display()))
            }
            Place::Database(documents) => match documents.rename(name, new_name)? {
                Update::Missing => {
                    bail!("cannot rename {name:?}: there is no such conversation, or one is called {new_name:?}")
                }
                Update::Merged | Update::Kept => Ok(()),
            },
        }
    }

    /// Removes a conversation.
    ///
    /// # Errors
    /// When the name is not valid for a file, or it cannot be removed.
    pub fn remove(&self, name: &str) -> anyhow::Result<()> {
        check_name(name)?;
        self.forget_single();
        match &self.place {
            Place::Folder(folder) => {
                let path = path_of(folder, name);
                let _writing = lock(folder);
                std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))
            }
            Place::Database(documents) => documents.remove(name).map(drop).map_err(Into::into),
        }
    }

    /// Whether a conversation has this name.
    ///
    /// # Errors
    /// When the database cannot be reached.
    pub fn contains(&self, name: &str) -> anyhow::Result<bool> {
        if check_name(name).is_err() {
            return Ok(false);
        }
        match &self.place {
            Place::Folder(folder) => Ok(path_of(folder, name).exists()),
            Place::Database(documents) => Ok(documents.load(name)?.is_some()),
        }
    }

    /// Forgets the single question: a later conversation is now the one to continue, and a person who deletes one wants
    /// none of it left.
    fn forget_single(&self) {
        // It usually does not exist.
        match &self.place {
            Place::Folder(folder) => drop(std::fs::remove_file(path_of(folder, SINGLE))),
            Place::Database(documents) => drop(documents.remove(SINGLE)),
        }
    }

    fn write(&self, name: &str, conversation: &Conversation) -> anyhow::Result<()> {
        let folder = match &self.place {
            Place::Folder(folder) => folder,
            Place::Database(documents) => {
                let saved = documents.save(name, serde_json::to_value(conversation)?);
                return saved.map(drop).with_context(|| format!("cannot save the conversation {name:?}"));
            }
        };
        let path = path_of(folder, name);
        let failure = || format!("cannot save the conversation as {}", path.display());
        prepare(folder).with_context(failure)?;
        replace(&path, "conversation", |file| write_to(file, conversation)).with_context(failure)
    }

    /// Reads a conversation; `None` if it does not exist.
    fn read(&self, name: &str) -> anyhow::Result<Option<Conversation>> {
        match &self.place {
            Place::Folder(folder) => {
                let path = path_of(folder, name);
                let text = match std::fs::read_to_string(&path) {
                    Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                    text => text.with_context(|| format!("cannot read {}", path.display()))?,
                };
                checked(serde_json::from_str(&text), || path.display().to_string()).map(Some)
            }
            Place::Database(documents) => {
                let content = documents.load(name).with_context(|| format!("cannot read the conversation {name:?}"))?;
                content.map(|content| checked(serde_json::from_value(content), || in_database(name))).transpose()
            }
        }
    }

    /// Saves a new conversation under an unused name made of the day and the first words; returns the name.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn begin(&self, day: Date, question: &str, conversation: &Conversation) -> anyhow::Result<String> {
        loop {
            let name = fresh_name(day, question, |name| self.contains(name));
            if self.save_new(&name, conversation)? {
                return Ok(name);
            }
        }
    }
}

/// Merges two versions of a conversation. The exchanges, model and instructions of the later one are shown. `None` if one
/// of them cannot be read.
pub fn merge_versions(later: Value, earlier: Value) -> Option<Value> {
    let read = |version| {
        let read = checked(serde_json::from_value(version), String::new).ok()?;
        Branches::from_list(read.exchanges.clone(), &read.forks).is_ok().then_some(read)
    };
    serde_json::to_value(read(later)?.with_others(read(earlier)?)).ok()
}

/// A conversation read from `place`, if its format is the one that this version reads.
fn checked(read: serde_json::Result<Conversation>, place: impl Fn() -> String) -> anyhow::Result<Conversation> {
    let conversation = read.with_context(|| format!("{} is not a conversation that this version can read", place()))?;
    if conversation.format != FORMAT {
        let found = conversation.format;
        bail!("{} has format {found}, and this version reads format {FORMAT}", place());
    }
    Ok(conversation)
}

fn in_database(name: &str) -> String {
    format!("the conversation {name:?} in the database")
}

/// Locks a folder against other processes that write conversations; `None` where the file system has no locks.
fn lock(folder: &Path) -> Option<File> {
    prepare(folder).ok()?;
    let file = open_private(&folder.join(".lock"), OpenOptions::new().write(true).create(true)).ok()?;
    file.lock().ok()?;
    Some(file)
}

/// Creates the folder, for its owner alone.
fn prepare(folder: &Path) -> std::io::Result<()> {
    create_private_folder(folder)?;
    make_private(folder).map(drop)
}

fn write_to(mut file: impl Write, conversation: &Conversation) -> std::io::Result<()> {
    serde_json::to_writer_pretty(&mut file, conversation)?;
    file.write_all(b"\n")
}

/// The file of a conversation.
fn path_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{}.json", as_file_name(name)))
}

/// The time when each conversation in a folder was written, and its name.
fn entries_in(folder: &Path) -> std::io::Result<Vec<(SystemTime, String)>> {
    let items = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        items => items?,
    };
    let mut found: Vec<(SystemTime, String)> = Vec::new();
    for item in items {
        let path = item?.path();
        if let Some(name) = name_of(&path) {
            found.push((path.metadata()?.modified()?, name));
        }
    }
    Ok(found)
}

fn time_of(written: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(written.0)
}

/// The name of a file in the store; `None` if it is not a conversation.
fn name_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?.strip_suffix(".json")?;
    let conversation = of_file_name(name);
    // Another program's file is not a conversation: its name does not survive decoding and encoding.
    (!name.starts_with('.') && as_file_name(&conversation) == name).then_some(conversation)
}

#[cfg(test)]
mod tests {
    use hone_protocol::{QueryId, Timings};

    use super::super::session::tests::session;
    use super::super::session::{SavedExchange, Session};
    use super::*;

    fn store() -> (tempfile::TempDir, ConversationStore) {
        let folder = tempfile::tempdir().unwrap();
        let store = ConversationStore::new(folder.path().join("conversations"));
        (folder, store)
    }

    fn folder_of(store: &ConversationStore) -> &Path {
        match &store.place {
            Place::Folder(folder) => folder,
            Place::Database(_) => panic!("it is in a folder"),
        }
    }

    /// Saves a new conversation.
    #[track_caller]
    fn begin(store: &ConversationStore, name: &str, conversation: &Conversation) {
        assert!(store.save_new(name, conversation).unwrap(), "{name} is taken");
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let (_folder, store) = store();
        assert_eq!(store.names().unwrap(), Vec::<String>::new());
        let conversation = session(2).conversation();
        begin(&store, "tides", &conversation);
        assert_eq!(store.load("tides").unwrap(), conversation);
        assert_eq!(
            std::fs::read_dir(folder_of(&store)).unwrap().count(),
            2,
            "only the conversation and the lock are left"
        );
    }

    /// A chat that resumes the saved conversation.
    fn resumed(store: &ConversationStore) -> Session {
        let mut session = session(0);
        session.resume("tides".to_owned(), store.load("tides").unwrap()).unwrap();
        session
    }

    fn ask(session: &mut Session, question: &str) {
        session.ask(question.to_owned());
        session.finish(QueryId::fresh(), String::new(), None, Timings::default());
    }

    #[track_caller]
    fn save(store: &ConversationStore, chat: &Session) {
        assert!(store.save("tides", &chat.conversation()).unwrap(), "it is gone");
    }

    #[test]
    fn a_conversation_that_another_process_deletes_or_renames_does_not_come_back() {
        let (_folder, store) = store();
        begin(&store, "tides", &session(1).conversation());
        let mut chat = resumed(&store);
        ask(&mut chat, "mine");
        store.rename("tides", "sea").unwrap();
        assert!(!store.save("tides", &chat.conversation()).unwrap());
        assert_eq!((store.names().unwrap(), store.load("sea").unwrap().exchanges.len()), (vec!["sea".to_owned()], 1));
        begin(&store, "tides", &chat.conversation());
        assert!(store.rename("sea", "tides").unwrap_err().to_string().contains("saved already"));
        store.remove("tides").unwrap();
        assert!(!store.save("tides", &chat.conversation()).unwrap());
        assert_eq!(store.names().unwrap(), ["sea"]);
    }

    #[test]
    fn two_chats_in_one_conversation_lose_nothing() {
        let (_folder, store) = store();
        begin(&store, "tides", &session(2).conversation());
        let (mut one, mut other) = (resumed(&store), resumed(&store));
        ask(&mut one, "mine");
        save(&store, &one);
        other.undo();
        ask(&mut other, "yours");
        save(&store, &other);
        // When one chat saves again, nothing is duplicated, and the exchange that the other chat undid is still there.
        ask(&mut one, "more");
        save(&store, &one);
        let questions = |exchanges: &[&SavedExchange]| -> Vec<String> {
            exchanges.iter().map(|exchange| exchange.question.clone()).collect()
        };
        let last = resumed(&store);
        assert_eq!(questions(&last.exchanges()), ["q1", "q2", "mine", "more"]);
        let all = store.load("tides").unwrap().exchanges;
        assert_eq!(questions(&all.iter().collect::<Vec<_>>()), ["q1", "q2", "mine", "more", "yours"]);
    }

    #[test]
    fn two_versions_that_could_not_be_written_in_time_become_one() {
        let (_folder, store) = store();
        begin(&store, "tides", &session(2).conversation());
        let (mut one, mut other) = (resumed(&store), resumed(&store));
        ask(&mut one, "mine");
        ask(&mut other, "yours");
        let value = |chat: &Session| serde_json::to_value(chat.conversation()).unwrap();
        let merged: Conversation = serde_json::from_value(merge_versions(value(&one), value(&other)).unwrap()).unwrap();
        let questions: Vec<String> = merged.exchanges.into_iter().map(|exchange| exchange.question).collect();
        assert_eq!(questions, ["q1", "q2", "mine", "yours"]);
        assert_eq!(merge_versions(value(&one), serde_json::json!({ "format": 99 })), None);
    }

    #[test]
    fn chats_that_save_at_the_same_moment_lose_nothing() {
        const QUESTIONS: usize = 20;
        let (_folder, store) = store();
        begin(&store, "tides", &session(1).conversation());
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let mut chat = resumed(&store);
                let store = &store;
                scope.spawn(move || {
                    for _ in 0..QUESTIONS {
                        ask(&mut chat, "again");
                        save(store, &chat);
                    }
                });
            }
        });
        assert_eq!(store.load("tides").unwrap().exchanges.len(), 1 + 2 * QUESTIONS);
    }

    #[test]
    fn what_was_taken_back_does_not_come_back() {
        let (_folder, store) = store();
        begin(&store, "tides", &session(2).conversation());
        let mut chat = resumed(&store);
        chat.undo();
        save(&store, &chat);
        ask(&mut chat, "again");
        save(&store, &chat);
        assert_eq!(store.load("tides").unwrap().exchanges.len(), 2);
    }

    #[test]
    fn the_conversation_written_last_comes_first() {
        let (_folder, store) = store();
        for (name, seconds) in [("old", 1_000), ("new", 3_000), ("middle", 2_000)] {
            begin(&store, name, &session(0).conversation());
            let file = std::fs::File::options().append(true).open(path_of(folder_of(&store), name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds)).unwrap();
        }
        std::fs::write(folder_of(&store).join("notes.txt"), "").unwrap();
        assert_eq!(store.names().unwrap(), ["new", "middle", "old"]);
    }

    #[test]
    fn names_hold_spaces_and_signs() {
        let (_folder, store) = store();
        let names = ["Why? (2nd try)", "a: 100% <b> | \"c\" *", "50%25", "What's new & old, today!", "Größe 東京"];
        for name in names {
            begin(&store, name, &session(1).conversation());
            assert_eq!(store.load(name).unwrap().exchanges.len(), 1, "{name}");
        }
        let mut seen = store.names().unwrap();
        seen.sort();
        let mut expected = names.map(str::to_owned);
        expected.sort();
        assert_eq!(seen, expected);
        let files =
            std::fs::read_dir(folder_of(&store)).unwrap().map(|item| item.unwrap().file_name().into_string().unwrap());
        assert!(files.into_iter().all(|file| !file.contains(['?', ':', '<', '>', '|', '"', '*'])));
    }

    #[test]
    fn the_question_asked_alone_is_kept_and_listed_nowhere() {
        let (_folder, store) = store();
        assert!(store.single().unwrap().is_none());
        for n_exchanges in [1, 2] {
            store.keep_single(&session(n_exchanges).conversation()).unwrap();
            assert_eq!(store.single().unwrap().unwrap().1.exchanges.len(), n_exchanges);
        }
        assert_eq!(store.names().unwrap(), Vec::<String>::new());
        begin(&store, "tides", &session(1).conversation());
        assert!(store.single().unwrap().is_none(), "a later conversation is what is continued");
        store.keep_single(&session(1).conversation()).unwrap();
        store.remove("tides").unwrap();
        assert!(store.single().unwrap().is_none(), "nothing is left");
        std::fs::write(folder_of(&store).join("x%3f.json"), "{}").unwrap();
        assert_eq!(store.names().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn names_that_leave_the_folder_are_refused() {
        let (_folder, store) = store();
        for name in [
            "",
            " ",
            "../x",
            "a/b",
            "a\\b",
            ".hidden",
            "a\nb",
            &"a".repeat(100),
            "CON",
            "nul",
            "Aux.x",
            "com1",
            "LPT9 ",
        ] {
            assert!(store.save_new(name, &session(0).conversation()).is_err(), "{name:?}");
            assert!(store.load(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_understood_is_named() {
        let (_folder, store) = store();
        begin(&store, "a", &session(1).conversation());
        let path = path_of(folder_of(&store), "a");
        let whole = std::fs::read_to_string(&path).unwrap();
        for broken in [&whole[..whole.len() / 2], "", &whole.replace("\"format\": 1", "\"format\": 99")] {
            std::fs::write(&path, broken).unwrap();
            for error in [store.load("a").map(drop), store.save("a", &session(1).conversation()).map(drop)] {
                let error = format!("{:#}", error.unwrap_err());
                assert!(error.contains("a.json"), "{error}");
            }
            assert_eq!(std::fs::read_to_string(&path).unwrap(), broken, "a version that cannot be read is kept");
        }
        assert_eq!(store.load("b").unwrap_err().to_string(), "no conversation \"b\" is saved");
    }
}
