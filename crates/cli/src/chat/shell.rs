//! Executes a line of the chat: answers a question, or runs a command.
//!
//! The keyboard and the screen stay outside, so that a whole chat runs in a test.

mod actions;
mod telling;

use std::sync::Arc;

use anyhow::Context;
use hone_agents::Asker;
use hone_app::answering::{Ending, answer};
use hone_app::conversations::{ConversationStore, SavedExchange, Session};
use hone_app::decisions::Remarkers;
use hone_app::describe::{nearest, rating as rating_in_words};
use hone_app::judging::reasons;
use hone_app::tools::Tools;
use hone_app::{Interrupt, Silent, Stack};
use hone_memory::Update;
use hone_protocol::{FinishReason, Generate, GenerateError, Grade, GradedAnswer, QueryId, Rating, remarks_in_words};
use time::OffsetDateTime;

pub(crate) use self::telling::tell_resumed;
use self::telling::{help, settings, show, statistics, system_or_none};
use super::announcements::Announcements;
use super::attachments::{self, Attachment};
use super::completion::Candidates;
use super::explanation::JudgedAnswer;
use super::fetching::Fetching;
use super::input::{self, Input};
use super::screen::Screen;
use super::slash::SlashCommand;
use crate::failure::is_broken_pipe;
use crate::terminal::Line;

/// The installed models, and those that a chat can download.
pub(crate) trait ModelShelf {
    /// Makes sure that `name` can be loaded, downloading it if necessary.
    ///
    /// # Errors
    /// When it is unavailable; the message says why.
    fn provide(&self, name: &str) -> anyhow::Result<()>;

    /// Names for completion.
    fn names(&self) -> Vec<String>;

    /// The models that remark on the answers of the model `author`.
    fn remarkers(&self, generator: &Arc<dyn Generate>, author: &str) -> Remarkers;
}

/// Whether the chat continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// It does.
    Continue,
    /// It does, but pending input is discarded along with the answer.
    Interrupted,
    /// The user wants to leave.
    Leave,
}

/// A chat and its dependencies.
pub(crate) struct Shell<'a> {
    /// The conversation.
    pub(crate) session: Session,
    /// The agents that answer, grade and remember.
    pub(crate) stack: &'a Stack,
    /// The line to the agents.
    pub(crate) asker: Asker,
    /// The outcomes of earlier answers.
    pub(crate) announcements: &'a Announcements,
    /// The models to switch to.
    pub(crate) models: &'a dyn ModelShelf,
    /// Where conversations are kept.
    pub(crate) store: &'a ConversationStore,
    /// Ctrl-C.
    pub(crate) interrupt: &'a Interrupt,
    /// The attachments of the next question.
    pub(crate) attached: Vec<Attachment>,
    /// The tools that the model may call.
    pub(crate) tools: &'a dyn Tools,
    /// The model that is being downloaded.
    pub(crate) fetching: Option<&'a Fetching>,
}

impl Shell<'_> {
    /// Executes `text`. Errors are shown, and the chat continues.
    ///
    /// # Errors
    /// When the reader of the output is gone.
    pub(crate) fn handle(&mut self, text: &str, screen: &mut dyn Screen) -> anyhow::Result<Flow> {
        let done = match input::parse(text) {
            Input::Nothing => return Ok(Flow::Continue),
            Input::Wrong(reason) => Err(anyhow::Error::msg(reason)),
            Input::Command(command) => self.obey(command, screen),
            Input::Question(question) => self.ask(&question, screen),
        };
        match done {
            Err(error) if is_broken_pipe(&error) => Err(error),
            Err(error) => {
                screen.error(&format!("{error:#}"));
                Ok(Flow::Continue)
            }
            done => done,
        }
    }

    /// The names that commands currently accept.
    pub(crate) fn candidates(&self) -> Candidates {
        let settings = self.session.config().entries().keys().filter_map(|key| key.strip_prefix(SAMPLING));
        Candidates {
            models: self.models.names(),
            // A folder that cannot be listed is reported by `/load`, not by the Tab key.
            conversations: self.store.names().unwrap_or_default(),
            settings: settings.map(str::to_string).collect(),
        }
    }

    fn obey(&mut self, command: SlashCommand, screen: &mut dyn Screen) -> anyhow::Result<Flow> {
        let done = match command {
            SlashCommand::Help => screen.say_rows(&help()),
            SlashCommand::Model(None) => screen.say(self.session.model()),
            SlashCommand::Model(Some(name)) => self.change_model(&name, screen),
            SlashCommand::System(None) => screen.say(system_or_none(&self.session)),
            SlashCommand::System(Some(text)) => self.instruct(&text, screen),
            SlashCommand::Set(None) => screen.say_rows(&settings(&self.session)),
            SlashCommand::Set(Some((key, value))) => self.set(&key, value.as_deref(), screen),
            SlashCommand::File(None) => screen.say(&self.attachments()),
            SlashCommand::File(Some(path)) => self.attach(&path, screen),
            SlashCommand::Show => show(&self.session, |id| self.verdicts(id), screen),
            SlashCommand::Clear => {
                self.clear(screen);
                Ok(())
            }
            SlashCommand::Save(name) => self.save_as(name, screen),
            SlashCommand::Load(None) => self.list(screen),
            SlashCommand::Load(Some(name)) => self.load(name, screen),
            SlashCommand::Again(model) => return self.ask_again(model, screen),
            SlashCommand::Continue => return self.continue_answer(screen),
            SlashCommand::Copy(number) => self.copy(number, screen),
            SlashCommand::Edit(text) => return self.ask_edited(&text.unwrap_or_default(), screen),
            SlashCommand::Export(file) => self.export(&file, screen),
            SlashCommand::Undo => self.undo(screen),
            SlashCommand::Stats => statistics(&self.session, screen),
            SlashCommand::Why(number) => self.explain(number, screen),
            SlashCommand::Forget(number) => self.forget(number, screen),
            SlashCommand::Rate(rating) => self.rate(rating, screen),
            SlashCommand::Exit => return Ok(Flow::Leave),
        };
        done.map(|()| Flow::Continue)
    }

    /// Asks a question, with its attachments and the files that it mentions.
    fn ask(&mut self, question: &str, screen: &mut dyn Screen) -> anyhow::Result<Flow> {
        let mentioned = Attachment::mentioned(question)?;
        if !mentioned.is_empty() {
            screen.note(&format!("with {}", attachments::describe(&mentioned)));
        }
        for name in Attachment::mentioned_in_vain(question) {
            screen.note(&format!("there is no file {name:?}: the question goes without it"));
        }
        let attached: Vec<Attachment> = std::mem::take(&mut self.attached).into_iter().chain(mentioned).collect();
        self.session.ask(attachments::compose(&attached, question));
        let answered = self.answer(screen);
        match &answered {
            // The question was withdrawn: its attachments wait for the next one.
            Err(_) => self.attached = attached,
            Ok(_) if !attached.is_empty() => telling::tell_prompt_tokens(&self.session, screen),
            Ok(_) => {}
        }
        answered
    }

    fn attach(&mut self, path: &str, screen: &mut dyn Screen) -> anyhow::Result<()> {
        let read = Attachment::read_all(path)?;
        screen.note(&format!("goes with the next question: {}", attachments::describe(&read)));
        self.attached.extend(read);
        Ok(())
    }

    fn attachments(&self) -> String {
        match self.attached.as_slice() {
            [] => "no file goes with the next question".to_owned(),
            attached => attachments::describe(attached),
        }
    }

    fn answer(&mut self, screen: &mut dyn Screen) -> anyhow::Result<Flow> {
        self.welcome()?;
        let (ending, _) = answer(&mut self.session, &mut self.asker, self.interrupt, self.tools, screen)?;
        let is_cut = |last: &&SavedExchange| last.finish_reason == Some(FinishReason::Length) && last.is_cut_off();
        if self.session.exchanges().last().is_some_and(is_cut) {
            screen.note("/continue extends the answer");
        }
        if let Err(error) = self.save_automatically() {
            screen.error(&format!("{error:#}"));
        }
        Ok(if ending == Ending::Interrupted { Flow::Interrupted } else { Flow::Continue })
    }

    /// The number, the question and the id of an answer, or of the last one.
    fn find_answer(&self, number: Option<usize>) -> anyhow::Result<(usize, &str, QueryId)> {
        let (number, exchange) = self.find_exchange(number)?;
        let id = exchange.query_id.context("this answer was given before answers were graded and remembered")?;
        Ok((number, &exchange.question, id))
    }

    /// The exchange with this number, or the last one.
    fn find_exchange(&self, number: Option<usize>) -> anyhow::Result<(usize, &SavedExchange)> {
        let exchanges = self.session.exchanges();
        if exchanges.is_empty() {
            anyhow::bail!("nothing has been answered yet");
        }
        let number = number.unwrap_or(exchanges.len());
        let Some(exchange) = exchanges.get(number - 1) else {
            anyhow::bail!("there is no answer {number}: there are {}, and /show numbers them", exchanges.len());
        };
        Ok((number, exchange))
    }

    /// Why an answer got its grade.
    fn explain(&self, number: Option<usize>, screen: &mut dyn Screen) -> anyhow::Result<()> {
        let (number, question, id) = self.find_answer(number)?;
        let explanation = self.announcements.explain(id, self.stack)?;
        let mut rows = vec![vec!["answer".to_owned(), format!("[{number}] {}", attachments::label(question))]];
        rows.extend(explanation.rows);
        screen.say_rows(&rows)?;
        let Some(mut judged) = explanation.judged else {
            return explanation.feedback.map_or(Ok(()), |feedback| screen.say(&format!("\n{feedback}")));
        };
        if judged.graded.grade.lacks_reasons() && self.stack.jury().is_some() {
            match self.reasons(id, &judged, screen) {
                Ok(Some(grade)) => judged.graded.grade = grade,
                Ok(None) => return Ok(()),
                Err(error) => screen.error(&format!("{error:#}")),
            }
        }
        let grade = &judged.graded.grade;
        if !grade.feedback.is_empty() {
            screen.say(&format!("\n{}", grade.feedback))?;
        }
        if grade.remarks.is_empty() { self.remark(id, judged, screen) } else { Ok(()) }
    }

    /// The grade with reasons that the judge writes now; `None` if Ctrl-C comes first.
    fn reasons(&self, id: QueryId, judged: &JudgedAnswer, screen: &mut dyn Screen) -> anyhow::Result<Option<Grade>> {
        let jury = self.stack.jury().context("no judge is asked (--grade)")?;
        screen.note("the judge writes its reasons (Ctrl-C stops it)");
        let JudgedAnswer { graded, model } = judged;
        let Some(grade) = reasons(jury, graded, model, self.interrupt, &Silent)? else { return Ok(None) };
        if let Some(store) = self.stack.store() {
            store.update_score(id, &grade)?;
        }
        Ok(Some(grade))
    }

    /// Shows remarks on an answer, and keeps them.
    fn remark(&self, id: QueryId, judged: JudgedAnswer, screen: &mut dyn Screen) -> anyhow::Result<()> {
        let remarkers = self.models.remarkers(self.stack.generator(), &judged.model);
        if remarkers.is_empty() {
            return Ok(());
        }
        screen.note("other models check the answer (Ctrl-C stops them)");
        let GradedAnswer { query, answer, grade } = judged.graded;
        let listening = self.interrupt.listen();
        let remarks = match remarkers.remark(&query, &answer, &|| !listening.pressed().is_empty()) {
            Ok(remarks) => remarks,
            Err(GenerateError::Stopped) => return Ok(()),
            Err(error) => {
                screen.note(&format!("no remarks: {error}"));
                return Ok(());
            }
        };
        let said = remarks_in_words(&remarks);
        let standing = self.announcements.grade(id, self.stack);
        // The answer may have been graded again meanwhile.
        let is_standing = standing.is_none_or(|it| it.score == grade.score && it.is_comparable(&grade));
        if let Some(store) = self.stack.store().filter(|_| is_standing) {
            store.update_score(id, &Grade { remarks, ..grade })?;
        }
        screen.say(&format!("\n{said}"))
    }

    /// Forgets what was recalled for the last answer.
    fn forget(&self, number: Option<usize>, screen: &mut dyn Screen) -> anyhow::Result<()> {
        let (_, _, id) = self.find_answer(None)?;
        let store = self.stack.store().context("nothing is remembered (memory.remember is false)")?;
        let recalled = self.announcements.recalled(id, self.stack);
        let numbered = || {
            recalled
                .iter()
                .enumerate()
                .map(|(index, engram)| format!("\n{}  {}", index + 1, attachments::label(&engram.query)))
        };
        let chosen = match (number, recalled.as_slice()) {
            (_, []) => anyhow::bail!("nothing was recalled for the last answer"),
            (None, [only]) => only,
            (None, several) => {
                anyhow::bail!("{} were recalled: /forget N{}", several.len(), numbered().collect::<String>())
            }
            (Some(number), several) => several
                .get(number - 1)
                .with_context(|| format!("there is no number {number}:{}", numbered().collect::<String>()))?,
        };
        let label = attachments::label(&chosen.query);
        let forgotten = store.get(chosen.query_id)?.map(|engram| store.forget(&engram)).transpose()?;
        screen.note(&match forgotten {
            Some(Update::Merged) => format!("forgotten: {label}"),
            _ => format!("it was forgotten before: {label}"),
        });
        Ok(())
    }

    /// The badge of an answer, and the user's rating.
    fn verdicts(&self, id: QueryId) -> Vec<Line> {
        let rating = self.announcements.rating(id, self.stack);
        let rating = rating.map(|rating| Line::plain(format!("you rated it {}", rating_in_words(rating))));
        self.announcements.badge(id, self.stack).into_iter().chain(rating).collect()
    }

    fn rate(&mut self, rating: Rating, screen: &mut dyn Screen) -> anyhow::Result<()> {
        let (_, _, answer) = self.find_answer(None)?;
        self.asker.rate(self.session.id(), answer, rating);
        screen.note(match rating {
            Rating::Good => "noted: a good answer",
            Rating::Bad => "noted: a bad answer",
        });
        Ok(())
    }

    fn change_model(&mut self, name: &str, screen: &mut dyn Screen) -> anyhow::Result<()> {
        self.models.provide(name)?;
        self.session.set("engine.model", name)?;
        screen.note(&format!("{} answers from now on", self.session.model()));
        Ok(())
    }

    fn instruct(&mut self, text: &str, screen: &mut dyn Screen) -> anyhow::Result<()> {
        self.session.set("chat.system", text)?;
        screen.note(match text {
            "" => "the instructions are left to the model's template again",
            _ => "instructions changed",
        });
        Ok(())
    }

    fn clear(&mut self, screen: &mut dyn Screen) {
        let kept = self.session.name().map(|name| format!(" ({name} is saved)")).unwrap_or_default();
        self.session.clear();
        screen.note(&format!("a new conversation{kept}"));
    }

    fn set(&mut self, name: &str, value: Option<&str>, screen: &mut dyn Screen) -> anyhow::Result<()> {
        let key = format!("{SAMPLING}{name}");
        let current = |session: &Session| session.config().entries().get(&key).map(|entry| entry.value.to_string());
        let Some(before) = current(&self.session) else {
            let names = self.candidates().settings;
            let meant = nearest(name, names.iter().map(String::as_str));
            let advice = meant.map_or(String::new(), |meant| format!("did you mean {meant}? "));
            anyhow::bail!("unknown setting {name:?}: {advice}/set lists them");
        };
        let Some(value) = value else { return screen.say(&before) };
        self.session.set(&key, value)?;
        screen.note(&format!("{name} is {} now (before: {before})", current(&self.session).unwrap_or_default()));
        Ok(())
    }

    fn undo(&mut self, screen: &mut dyn Screen) -> anyhow::Result<()> {
        let Some(undone) = self.session.undo() else { anyhow::bail!("nothing has been said yet") };
        screen.note(&format!("taken back: {}", attachments::label(&undone.question)));
        if self.session.name().is_some() { self.save_automatically() } else { Ok(()) }
    }

    fn save_as(&mut self, name: Option<String>, screen: &mut dyn Screen) -> anyhow::Result<()> {
        let other = name.filter(|name| Some(name.as_str()) != self.session.name());
        if other.is_some() || !self.save()? {
            let name = other.or_else(|| self.session.name().map(str::to_owned)).unwrap_or_default();
            // A database that cannot be reached keeps a new conversation for later, whether or not the name is taken.
            if self.store.contains(&name)? || !self.store.save_new(&name, &self.session.conversation())? {
                anyhow::bail!("a conversation {name:?} is saved already: choose another name");
            }
            self.session.rename(name);
        }
        screen.note(&format!("saved as {}", self.session.name().unwrap_or_default()));
        Ok(())
    }

    fn save_automatically(&mut self) -> anyhow::Result<()> {
        let wanted = self.session.config().chat.save && !self.session.exchanges().is_empty();
        let is_saved = |name: &str| self.store.contains(name).unwrap_or(true);
        if (wanted || self.session.name().is_some_and(is_saved)) && !self.save()? {
            let name = self.session.name().unwrap_or_default();
            anyhow::bail!("the conversation {name:?} was deleted or renamed meanwhile: /save saves it again");
        }
        Ok(())
    }

    /// Saves the conversation; returns whether it was saved. One that another process has removed or renamed is not.
    fn save(&mut self) -> anyhow::Result<bool> {
        match self.session.name() {
            Some(name) => self.store.save(name, &self.session.conversation()),
            None => self.begin().map(|()| true),
        }
    }

    /// Saves the conversation under a new name.
    fn begin(&mut self) -> anyhow::Result<()> {
        let exchanges = self.session.exchanges();
        let question = exchanges.first().map_or("", |it| it.question.as_str());
        let today = OffsetDateTime::now_utc().date();
        self.session.rename(self.store.begin(today, question, &self.session.conversation())?);
        Ok(())
    }

    fn list(&self, screen: &mut dyn Screen) -> anyhow::Result<()> {
        let names = self.store.names()?;
        screen.say(&if names.is_empty() { "no conversation is saved".to_string() } else { names.join("\n") })
    }

    fn load(&mut self, name: String, screen: &mut dyn Screen) -> anyhow::Result<()> {
        let conversation = self.store.load(&name)?;
        self.models.provide(&conversation.model)?;
        self.session.resume(name, conversation)?;
        tell_resumed(&self.session, screen)
    }
}

/// Prefix of the keys of the sampling settings.
const SAMPLING: &str = "sampling.";

#[cfg(test)]
mod tests {
    use hone_protocol::scripted::{Script, Scripted};
    use hone_protocol::{FinishReason, Prompt, Role};

    use super::*;
    use crate::terminal::Output;
    use crate::terminal::lines::Lines;
    use hone_app::scripted::{Agents, Recorder, agents, interrupt_never, saying, session};
    use hone_app::tools::NoTools;

    struct Shelf;

    impl ModelShelf for Shelf {
        fn provide(&self, name: &str) -> anyhow::Result<()> {
            if name == "nowhere" { anyhow::bail!("no model {name:?}") } else { Ok(()) }
        }

        fn names(&self) -> Vec<String> {
            vec!["smollm2:135m".to_string()]
        }

        fn remarkers(&self, _: &Arc<dyn Generate>, _: &str) -> Remarkers {
            Remarkers::none()
        }
    }

    /// Types `lines` into a new chat, and returns what was shown, with today's date as DAY.
    #[track_caller]
    fn check(generator: &Arc<Scripted>, lines: &[&str], expected: &str) {
        let folder = tempfile::tempdir().unwrap();
        let store = ConversationStore::new(folder.path().to_path_buf());
        assert_eq!(type_lines(generator, &store, lines).join("\n"), expected);
    }

    fn type_lines(generator: &Arc<Scripted>, store: &ConversationStore, lines: &[&str]) -> Vec<String> {
        let interrupt = interrupt_never();
        let Agents { asker, stack } = agents(generator);
        let announcements = Announcements::new(Lines::new(Output::plain()));
        let mut shell = Shell {
            session: session(0),
            stack: &stack,
            asker,
            announcements: &announcements,
            models: &Shelf,
            store,
            interrupt: &interrupt,
            attached: Vec::new(),
            tools: &NoTools,
            fetching: None,
        };
        let mut screen = Recorder::default();
        for line in lines {
            if shell.handle(line, &mut screen).unwrap() == Flow::Leave {
                screen.seen.push("left".to_string());
            }
        }
        let day = name_of_today();
        screen.seen.iter().map(|seen| seen.replace(&day, "DAY")).collect()
    }

    fn name_of_today() -> String {
        let day = OffsetDateTime::now_utc().date();
        format!("{:04}-{:02}-{:02}", day.year(), u8::from(day.month()), day.day())
    }

    fn last_prompt(generator: &Scripted) -> String {
        match generator.requests().pop().unwrap().prompt {
            Prompt::Chat(messages) => {
                messages.iter().map(|message| message.content.as_str()).collect::<Vec<_>>().join(" ")
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_conversation_goes_on() {
        let generator = saying(&["yes"]);
        check(&generator, &["one", "  ", "two"], "yes|end\nyes|end");
        assert_eq!(last_prompt(&generator), "one yes two");
    }

    #[test]
    fn regen_and_undo_change_what_the_model_is_shown() {
        let generator = saying(&["yes"]);
        check(&generator, &["one", "two", "/regen"], "yes|end\nyes|end\nyes|end");
        assert_eq!(last_prompt(&generator), "one yes two");
        check(&generator, &["one", "two", "/undo", "three"], "yes|end\nyes|end\nnote: taken back: two\nyes|end");
        assert_eq!(last_prompt(&generator), "one yes three");
        check(&generator, &["one", "/clear", "two"], "yes|end\nnote: a new conversation (DAY-one is saved)\nyes|end");
        assert_eq!(last_prompt(&generator), "two");
        check(&generator, &["/regen", "/undo"], "error: nothing has been asked yet\nerror: nothing has been said yet");
    }

    #[test]
    fn another_model_answers_a_question_again_and_only_that() {
        let generator = saying(&["yes"]);
        let lines = ["one", "/again b", "/model", "two", "/again nowhere", "/again"];
        check(&generator, &lines, "yes|end\nyes|end\nsmollm2:135m\nyes|end\nerror: no model \"nowhere\"\nyes|end");
        let models: Vec<String> = generator.requests().into_iter().map(|request| request.model).collect();
        assert_eq!(models, ["smollm2:135m", "b", "smollm2:135m", "smollm2:135m"]);
    }

    #[test]
    fn an_answer_that_was_cut_off_is_continued() {
        let generator = Arc::new(Scripted::new(|request| match &request.prompt {
            Prompt::Chat(messages) if messages.last().is_some_and(|last| last.role == Role::Assistant) => {
                Script::saying(&[" in 1792."])
            }
            _ => Script { finish_reason: Some(FinishReason::Length), ..Script::saying(&["It was built"]) },
        }));
        let nothing = "error: no answer was cut off: there is nothing to continue";
        let cut = "note: the answer was cut after 1 tokens: --max-tokens 0 (in a chat: /set max_tokens 0) lifts the limit\n\
                   note: /continue extends the answer";
        let expected = format!("{nothing}\nIt was built|end\n{cut}\nIt was built| in 1792.|end\n{nothing}");
        check(&generator, &["/continue", "When?", "/continue", "/continue"], &expected);
        assert_eq!(last_prompt(&generator), "When? It was built");
    }

    #[test]
    fn answers_are_copied_and_questions_are_edited() {
        let generator = saying(&["yes"]);
        check(&generator, &["/copy"], "error: nothing has been answered yet");
        check(
            &generator,
            &["one", "/copy", "/copy 1", "/copy 2"],
            "yes|end\ncopied: yes\ncopied: yes\nerror: there is no answer 2: there are 1, and /show numbers them",
        );
        check(
            &generator,
            &["/edit Why is", "/edit"],
            "edited: Why is\nnote: > Why is, at length\nyes|end\nedited: \nnote: nothing to ask",
        );
        assert_eq!(last_prompt(&generator), "Why is, at length");
    }

    #[test]
    fn a_conversation_is_exported_to_a_new_file() {
        let folder = tempfile::tempdir().unwrap();
        let generator = saying(&["yes"]);
        let path = folder.path().join("a.md").display().to_string();
        let export = format!("/export {path}");
        let seen = type_lines(
            &generator,
            &ConversationStore::new(folder.path().join("saved")),
            &["/export x.md", "one", &export, &export],
        );
        let expected = [
            "error: nothing has been answered yet".to_owned(),
            "yes|end".to_owned(),
            format!("note: written to {path}"),
            format!("error: {path} exists already: choose another name"),
        ];
        assert_eq!(seen, expected);
        assert!(std::fs::read_to_string(path).unwrap().ends_with("## You\n\none\n\n## smollm2:135m\n\nyes\n"));
    }

    #[test]
    fn settings_reach_the_model() {
        let generator = saying(&["yes"]);
        let lines = [
            "/set temperature 0",
            "/set seed 7",
            "/set stop END",
            "/set max_tokens 3",
            "/system be brief",
            "/model b",
            "x",
        ];
        let told = "note: temperature is 0.0 now (before: 0.2)\nnote: seed is 7 now (before: -1)\n\
                    note: stop is [\"END\"] now (before: [])\nnote: max_tokens is 3 now (before: 2048)\n\
                    note: instructions changed\nnote: b answers from now on\nyes|end";
        check(&generator, &lines, told);
        let request = generator.requests().pop().unwrap();
        assert_eq!((request.sampling.temperature, request.sampling.seed), (0.0, Some(7)));
        assert_eq!((request.stop, request.max_tokens, request.model), (vec!["END".into()], Some(3), "b".into()));
        assert_eq!(last_prompt(&generator), "be brief x");
    }

    #[test]
    fn settings_are_shown() {
        let generator = saying(&[]);
        check(&generator, &["/set top_p 0.5", "/set top_p"], "note: top_p is 0.5 now (before: 0.9)\n0.5");
        check(&generator, &["/model"], "smollm2:135m");
        check(&generator, &["/system"], "(left to the model's template)");
        let told = "note: instructions changed\n\
                    note: the instructions are left to the model's template again\n(left to the model's template)";
        check(&generator, &["/system a", "/system \"\"", "/system"], told);
        check(&generator, &["/stats"], "nothing has been answered yet");
        check(&generator, &["/exit"], "left");
    }

    #[test]
    fn what_goes_wrong_is_said_and_the_chat_goes_on() {
        let generator = saying(&["yes"]);
        check(&generator, &["/set top 1"], "error: unknown setting \"top\": did you mean top_k? /set lists them");
        check(&generator, &["/set mood"], "error: unknown setting \"mood\": /set lists them");
        check(
            &generator,
            &["/set top_p 3", "x"],
            "error: sampling.top_p (chat): top_p is 3: it must be 0 to 1\nyes|end",
        );
        check(&generator, &["/model nowhere", "/model"], "error: no model \"nowhere\"\nsmollm2:135m");
        check(&generator, &["/load nothing"], "error: no conversation \"nothing\" is saved");
        check(&generator, &["/undo it"], "error: /undo takes nothing, but \"it\" follows it");
        let broken = Arc::new(Scripted::always(Script::failing(GenerateError::Failed("no memory".into()))));
        check(&broken, &["x", "/undo"], "end\nerror: generation failed: no memory\nerror: nothing has been said yet");
    }

    #[test]
    fn files_go_with_the_next_question_that_is_answered() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.txt"), "one").unwrap();
        std::fs::write(folder.path().join("b.txt"), "two").unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (a, b) = (path("a.txt"), path("b.txt"));
        let generator = saying(&["yes"]);
        check(
            &generator,
            &["/file", &format!("/file {a}"), "/file", &format!("Is @{b} the same?"), "Why?", "/undo", "/undo"],
            &format!(
                "no file goes with the next question\nnote: goes with the next question: {a} (3 B, 1 line)\n\
                 {a} (3 B, 1 line)\nnote: with {b} (3 B, 1 line)\nyes|end\nnote: the conversation takes 1 tokens of the context\nyes|end\n\
                 note: taken back: Why?\nnote: taken back: {}",
                attachments::label(&format!(
                    "File: {a}\n```\none\n```\n\nFile: {b}\n```\ntwo\n```\n\nIs @{b} the same?"
                ))
            ),
        );
        let shown = format!("File: {a}\n```\none\n```\n\nFile: {b}\n```\ntwo\n```\n\nIs @{b} the same? yes Why?");
        assert_eq!(last_prompt(&generator), shown);
        let missing = path("c.txt");
        let lines = [format!("/file {missing}"), format!("Is @{missing} there?")];
        let seen = type_lines(
            &generator,
            &ConversationStore::new(path("saved").into()),
            &lines.each_ref().map(String::as_str),
        );
        assert!(seen[0].starts_with(&format!("error: cannot read {missing}")), "{seen:?}");
        let told = format!("note: there is no file {missing:?}: the question goes without it");
        assert_eq!(seen[1..], [told.as_str(), "yes|end"], "what only begins with @ is a part of the question");
    }

    #[test]
    fn any_answer_of_the_conversation_is_explained() {
        let generator = saying(&["yes"]);
        let ungraded = "grade   unknown: memory is off (--memory)";
        check(&generator, &["/why"], "error: nothing has been answered yet");
        check(
            &generator,
            &["one", "two", "/why", "/why 1", "/why 3"],
            &format!(
                "yes|end\nyes|end\nanswer  [2] two\n{ungraded}\nanswer  [1] one\n{ungraded}\n\
                 error: there is no answer 3: there are 2, and /show numbers them"
            ),
        );
    }

    #[test]
    fn conversations_are_saved_as_they_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let store = ConversationStore::new(folder.path().to_path_buf());
        let generator = saying(&["yes"]);
        type_lines(&generator, &store, &["Is it blue?", "Really?"]);
        let seen = type_lines(&generator, &store, &["/load"]);
        assert_eq!(seen, ["DAY-is-it-blue"]);
        let name = store.names().unwrap().remove(0);
        let seen = type_lines(&generator, &store, &[&format!("/load {name}"), "Why?"]);
        let resumed =
            ["note: resuming DAY-is-it-blue, 2 exchanges so far (/show shows them)", "note: > Really?", "yes|end"];
        assert_eq!(seen, [&resumed[..], &["yes|end"]].concat());
        assert_eq!(last_prompt(&generator), "Is it blue? yes Really? yes Why?");
        assert_eq!(store.load(&name).unwrap().exchanges.len(), 3);
        let seen =
            type_lines(&generator, &store, &["One?", "/save tides", "Two?", "/save tides", "/clear", "/save tides"]);
        assert_eq!(
            seen[1..],
            [
                "note: saved as tides",
                "yes|end",
                "note: saved as tides",
                "note: a new conversation (tides is saved)",
                "error: a conversation \"tides\" is saved already: choose another name",
            ]
        );
        assert_eq!(store.load("tides").unwrap().exchanges.len(), 2);
    }

    #[test]
    fn a_conversation_that_is_gone_comes_back_only_if_the_user_saves_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = ConversationStore::new(folder.path().to_path_buf());
        let elsewhere = store.clone();
        let generator = Scripted::new(move |_| {
            // Another process deletes it during the second answer.
            elsewhere.names().unwrap().iter().for_each(|name| elsewhere.remove(name).unwrap());
            Script::saying(&["yes"])
        });
        let seen = type_lines(&Arc::new(generator), &store, &["one", "two", "/save"]);
        let gone = "error: the conversation \"DAY-one\" was deleted or renamed meanwhile: /save saves it again";
        assert_eq!(seen, ["yes|end", "yes|end", gone, "note: saved as DAY-one"]);
        assert_eq!(store.load(&store.names().unwrap()[0]).unwrap().exchanges.len(), 2);
    }

    #[test]
    fn a_conversation_is_shown_with_what_it_cost() {
        let generator = saying(&["yes", "."]);
        check(
            &generator,
            &["one", "/stats", "/show"],
            "yes|.|end\n\
             \x20            prompt tokens  per second  answer tokens  per second\n\
             last answer  1              0.0         2              0.0\n\
             all answers  1                          2\n\
             conversation        DAY-one\nmodel               smollm2:135m\nsystem              (left to the model's template)\n\
             exchanges           1\nbeyond the context  0\n\n[1] > one\nyes.|end",
        );
    }
}
