//! The command line.
//!
//! These types hold the arguments as they were typed. A flag that sets a configuration key becomes an [`Override`] and
//! is validated together with every other source of that key, so that the core sees only
//! [`Config`](hone_app::config::Config).

mod background;
mod bench;
mod chat;
mod config;
mod conversations;
mod critic;
mod critique;
mod decide;
mod embed;
mod generate;
mod help;
mod judge;
mod launch;
mod memory;
mod preset;
mod pull;
mod report;
mod rerank;
mod research;
mod serve;
mod shared;
mod task;
mod worker;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use hone_app::config::Override;
use hone_protocol::Timestamp;

pub(crate) use background::{DownArguments, LogsArguments, UpArguments};
pub(crate) use bench::{BenchArguments, BenchCommand, ContentionArguments, SharingArguments};
pub(crate) use chat::{ChatArguments, ChatQualityFlags, RunArguments, ToolFlags};
pub(crate) use config::{ConfigArguments, ConfigChange, ConfigCommand};
pub(crate) use conversations::{
    ConversationsArguments, ConversationsCommand, ConversationsDeleteArguments, ConversationsExportArguments,
    ConversationsImportArguments, ConversationsRenameArguments, ConversationsSearchArguments,
    ConversationsShowArguments,
};
pub(crate) use critic::{
    ConsolidateArguments, CriticArguments, CriticBlocksArguments, CriticCommand, CriticExamArguments,
    CriticReviewArguments, CriticStatsArguments, CriticVetArguments, IntentionArguments,
};
pub(crate) use critique::CritiqueArguments;
pub(crate) use decide::DecideArguments;
pub(crate) use embed::EmbedArguments;
pub(crate) use generate::{GenerateArguments, PerplexityArguments, TokenizeArguments};
pub(crate) use help::{HelpArguments, command_line, complete_command_line};
pub(crate) use judge::{
    JudgeArguments, JudgeCalibrateArguments, JudgeCommand, JudgeEvalArguments, JudgeExamArguments,
    JudgeFeaturesArguments, JudgeListArguments,
};
pub(crate) use launch::LaunchArguments;
pub(crate) use memory::{
    EventsArguments, MemoryArguments, MemoryCommand, MemoryEvalArguments, MemoryExportArguments, MemoryImportArguments,
    MemoryListArguments, MemoryMoveArguments, MemoryRepairArguments, MemoryRmArguments, MemorySearchArguments,
    MemoryShowArguments, MemoryStatsArguments, Split,
};
pub(crate) use preset::{
    PresetArguments, PresetCommand, PresetCreateArguments, PresetListArguments, PresetNameArguments,
};
pub(crate) use pull::{ImportArguments, PullArguments};
pub(crate) use report::ReportArguments;
pub(crate) use rerank::RerankArguments;
pub(crate) use research::ResearchArguments;
pub(crate) use serve::{McpArguments, ServeArguments};
pub(crate) use shared::{BatchFlags, ContextFlag, EngineFlags, JsonFlag, JudgeFlag, SamplingFlags, SpeculationFlag};
pub(crate) use task::{
    TaskArguments, TaskCheckArguments, TaskCommand, TaskListArguments, TaskResolveArguments, TaskRunArguments,
    TaskShowArguments,
};
pub(crate) use worker::{BusFlag, WorkerArguments, WorkerRole};

/// The format of the file that `hone grade --input` reads.
const GRADE_KEYS: &str = "\
Each line of --input is an object with the string keys query and answer, and optionally reference.
Other keys are copied to the output, except the verdict's own keys, which are not allowed: score,
raw_score, feedback, expected_score, entropy, probability, likely, rubric, suspicious, spread,
disputed, jury, judge, self_graded, tokens, seconds, queue_seconds, concluded_early, method,
failure, setting.";

/// The format of the file that `hone compare --input` reads.
const COMPARE_KEYS: &str = "\
Each line of --input is an object with the string keys query, a and b. Other keys are copied to the
output, except the verdict's own keys, which are not allowed: winner, log_odds, consistent,
reason, jury, judge, self_graded, tokens, seconds, queue_seconds, concluded_early, method,
failure, setting.";

/// The heading of the flags that every command has.
const GLOBAL: &str = "Global options";

/// Inserts `chat` before a text in the place of a command: command names consist of small ASCII letters and hyphens.
pub(crate) fn spelled_out(mut words: Vec<OsString>) -> Vec<OsString> {
    let is_verbose = |word: &OsString| word == "--verbose" || word.to_str().is_some_and(|word| word.starts_with("-v"));
    let first = 1 + words.iter().skip(1).take_while(|word| is_verbose(word)).count();
    let is_text = |word: &OsString| {
        let word = word.to_string_lossy();
        let is_of_text = |c: char| c.is_whitespace() || "?!,;".contains(c) || c.is_uppercase() || !c.is_ascii();
        !word.starts_with('-') && word.trim().contains(is_of_text)
    };
    if words.get(first).is_some_and(is_text) {
        words.insert(first, "chat".into());
    }
    words
}

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "hone",
    version,
    about = "A local, offline chat that grades itself",
    max_term_width = 100,
    disable_help_subcommand = true,
    override_usage = "hone <COMMAND> [OPTIONS]\n       hone \"QUESTION\"\n       hone"
)]
pub(crate) struct Arguments {
    /// Log more to stderr; repeat to log everything. HONE_LOG sets a filter such as `hone_engine=debug`
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = GLOBAL)]
    pub(crate) verbose: u8,
    /// PostgreSQL database for memory and conversations: postgres://USER@HOST/NAME
    #[arg(long, global = true, value_name = "URL", help_heading = GLOBAL)]
    pub(crate) store: Option<String>,
    /// The subcommand.
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Arguments {
    /// The configuration keys that flags set.
    pub(crate) fn overrides(&self) -> Vec<Override> {
        let mut overrides = self.command.overrides();
        shared::add(&mut overrides, "memory.url", "--store", self.store.clone());
        overrides
    }
}

/// Subcommands of `hone`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Chat in the terminal, or answer one question
    Chat(ChatArguments),
    /// Chat with a model, or ask it one question
    Run(RunArguments),
    /// Serve the web page and the OpenAI, Anthropic and Ollama APIs
    Serve(ServeArguments),
    /// Start `hone serve` in the background
    Up(UpArguments),
    /// Stop the running server
    Down(DownArguments),
    /// Show the background server's log
    Logs(LogsArguments),
    /// Start a coding agent that uses hone's models
    #[command(after_help = launch::EXAMPLES)]
    Launch(LaunchArguments),
    /// Serve grading and memory as MCP tools, over stdin and stdout
    Mcp(McpArguments),
    /// Continue the text on stdin
    Generate(GenerateArguments),
    /// Compute text embeddings
    Embed(EmbedArguments),
    /// Rank texts by their relevance to a query
    Rerank(RerankArguments),
    /// Answer questions about a text, with probabilities
    Decide(DecideArguments),
    /// Convert text to token ids, or back
    Tokenize(TokenizeArguments),
    /// Measure how well a model predicts a text
    Perplexity(PerplexityArguments),
    /// Measure the speed of prompts and answers
    Bench(BenchArguments),
    /// Grade answers from 1 to 5: one, a file, or all that are due
    #[command(after_help = GRADE_KEYS)]
    Grade(GradeArguments),
    /// Choose the better of two answers, or of each pair in a file
    #[command(after_help = COMPARE_KEYS)]
    Compare(CompareArguments),
    /// Find faults in a text, and say whether to remember it
    #[command(after_help = critique::CRITIQUE_HELP)]
    Critique(CritiqueArguments),
    /// Manage the critic: blocks, reviews, examination
    Critic(CriticArguments),
    /// Write today's intention from memory and unfinished tasks
    #[command(after_help = critic::GATE_HELP)]
    Intention(IntentionArguments),
    /// Summarize related memories
    #[command(after_help = critic::GATE_HELP)]
    Consolidate(ConsolidateArguments),
    /// Answer from files and memory, with checked citations
    #[command(after_help = research::RESEARCH_HELP)]
    Research(ResearchArguments),
    /// Examine, measure, calibrate and list judges
    Judge(JudgeArguments),
    /// Extract the verdict from a judge's output on stdin
    Verdict(VerdictArguments),
    /// Write a model with random weights
    Synth(SynthArguments),
    /// Download a model
    #[command(after_help = pull::REFERENCES)]
    Pull(PullArguments),
    /// Use models from Ollama, LM Studio and llama.cpp
    Import(ImportArguments),
    /// List installed models
    List(ListArguments),
    /// Show details of a model
    Show(ShowArguments),
    /// Remove models
    Rm(RmArguments),
    /// Show running hone processes, their models and queues
    Ps(PsArguments),
    /// Do work for other machines over NATS: grade, answer, embed
    Worker(WorkerArguments),
    /// Build an executable with models inside
    Bundle(BundleArguments),
    /// Run end-to-end scenarios
    Story(StoryArguments),
    /// Manage presets: named settings for a chat
    Preset(PresetArguments),
    /// List, search, export and delete saved conversations
    Conversations(ConversationsArguments),
    /// Search and manage remembered answers and facts
    Memory(MemoryArguments),
    /// Compare models by their tasks and grades
    #[command(after_help = report::COMPARISON)]
    Report(ReportArguments),
    /// Have models work on tasks, and evaluate the work
    Task(TaskArguments),
    /// Show the messages between agents
    Events(EventsArguments),
    /// Check this machine and the installation for problems
    Doctor(DoctorArguments),
    /// Show, search and change settings
    Config(ConfigArguments),
    /// Print shell completions
    Completions(CompletionsArguments),
    /// List the commands, or explain one
    Help(HelpArguments),
}

impl Command {
    /// Whether the command computes with a model.
    pub(crate) fn runs_a_model(&self) -> bool {
        matches!(self, Command::Report(arguments) if arguments.comparison.compare.is_some())
            || matches!(self, Command::Doctor(arguments) if arguments.checks_isolation())
            || matches!(self, Command::Critic(arguments) if matches!(arguments.command, CriticCommand::Vet(_) | CriticCommand::Exam(_)))
            || matches!(
                self,
                Command::Chat(_)
                    | Command::Run(_)
                    | Command::Serve(_)
                    | Command::Worker(_)
                    | Command::Mcp(_)
                    | Command::Generate(_)
                    | Command::Embed(_)
                    | Command::Rerank(_)
                    | Command::Decide(_)
                    | Command::Perplexity(_)
                    | Command::Bench(_)
                    | Command::Grade(_)
                    | Command::Compare(_)
                    | Command::Critique(_)
                    | Command::Intention(_)
                    | Command::Consolidate(_)
                    | Command::Research(_)
                    | Command::Judge(_)
                    | Command::Story(_)
                    | Command::Task(TaskArguments { command: TaskCommand::Run(_) })
            )
    }

    /// The preset that the command uses.
    pub(crate) fn preset(&self) -> Option<&str> {
        match self {
            Command::Chat(chat) | Command::Run(RunArguments { chat, .. }) => chat.preset.as_deref(),
            _ => None,
        }
    }

    /// The configuration keys that flags of this command set.
    fn overrides(&self) -> Vec<Override> {
        let mut overrides = Vec::new();
        match self {
            Command::Task(arguments) => {
                if let TaskCommand::Run(arguments) = &arguments.command {
                    arguments.engine.add_to(&mut overrides);
                    arguments.sampling.add_to(&mut overrides);
                }
            }
            Command::Serve(arguments) => arguments.add_to(&mut overrides),
            Command::Worker(arguments) => arguments.add_to(&mut overrides),
            Command::Ps(arguments) => arguments.bus.add_to(&mut overrides),
            Command::Events(arguments) => arguments.bus.add_to(&mut overrides),
            Command::Up(arguments) => arguments.serve.add_to(&mut overrides),
            Command::Launch(arguments) => arguments.add_to(&mut overrides),
            Command::Mcp(arguments) => arguments.add_to(&mut overrides),
            Command::Chat(arguments) => arguments.add_to(&mut overrides),
            Command::Run(arguments) => arguments.add_to(&mut overrides),
            Command::Generate(arguments) => {
                arguments.engine.add_to(&mut overrides);
                arguments.context.add_to(&mut overrides);
                arguments.speculation.add_to(&mut overrides);
                arguments.sampling.add_to(&mut overrides);
            }
            Command::Embed(arguments) => arguments.add_to(&mut overrides),
            Command::Decide(arguments) => arguments.add_to(&mut overrides),
            Command::Tokenize(arguments) => arguments.model.add_to(&mut overrides),
            Command::Perplexity(arguments) => arguments.engine.add_to(&mut overrides),
            Command::Bench(arguments) => arguments.add_to(&mut overrides),
            Command::Critique(arguments) => arguments.add_to(&mut overrides),
            Command::Critic(arguments) => arguments.add_to(&mut overrides),
            Command::Intention(arguments) => arguments.add_to(&mut overrides),
            Command::Consolidate(arguments) => arguments.add_to(&mut overrides),
            Command::Research(arguments) => arguments.add_to(&mut overrides),
            Command::Judge(arguments) => arguments.add_to(&mut overrides),
            Command::Story(arguments) => arguments.engine.add_to(&mut overrides),
            Command::Doctor(arguments) => arguments.engine.add_to(&mut overrides),
            Command::Config(arguments) => arguments.add_to(&mut overrides),
            Command::Grade(arguments) => {
                arguments.engine.add_to(&mut overrides);
                arguments.judge.add_to(&mut overrides);
                shared::add(&mut overrides, "judge.rubric", "--rubric", arguments.rubric.clone());
            }
            Command::Report(arguments) => shared::add_judges(&mut overrides, &arguments.comparison.judge),
            Command::Compare(arguments) => {
                arguments.engine.add_to(&mut overrides);
                arguments.judge.add_to(&mut overrides);
            }
            Command::Verdict(_)
            | Command::Rerank(_)
            | Command::Synth(_)
            | Command::Pull(_)
            | Command::Import(_)
            | Command::List(_)
            | Command::Show(_)
            | Command::Rm(_)
            | Command::Bundle(_)
            | Command::Down(_)
            | Command::Logs(_)
            | Command::Preset(_)
            | Command::Conversations(_)
            | Command::Memory(_)
            | Command::Completions(_)
            | Command::Help(_) => {}
        }
        overrides
    }
}

/// Flags of `hone ps`.
#[derive(Debug, Args)]
pub(crate) struct PsArguments {
    /// Also show the workers on the bus, who uses them, and how much work is pending
    #[arg(short, long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) bus: BusFlag,
    /// Refresh every two seconds, until Ctrl-C
    #[arg(short, long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone grade`.
#[derive(Debug, Args)]
pub(crate) struct GradeArguments {
    /// The question
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        required_unless_present_any = ["input", "due"],
        conflicts_with_all = ["input", "due"]
    )]
    pub(crate) query: Option<String>,
    /// The answer
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        required_unless_present_any = ["input", "due"],
        conflicts_with_all = ["input", "due"]
    )]
    pub(crate) answer: Option<String>,
    /// Reference answer that deserves a 5
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, conflicts_with_all = ["input", "due"])]
    pub(crate) reference: Option<String>,
    /// Name of the model that gave the answers, if you know it: a judge treats its own answers differently
    #[arg(long, value_name = "MODEL", conflicts_with = "due")]
    pub(crate) answered_by: Option<String>,
    /// Rubric to grade by: built-in, or from the configuration's `rubrics` folder
    #[arg(long, value_name = "NAME")]
    pub(crate) rubric: Option<String>,
    /// Have the judge write its reasons if it gives a score without any (judge.feedback), and add remarks
    #[arg(long, conflicts_with_all = ["input", "due"])]
    pub(crate) why: bool,
    /// Exit with 3 if the score or mean score is below SCORE, and with 1 if there is no score
    #[arg(long, value_name = "SCORE")]
    pub(crate) at_least: Option<f64>,
    /// Grade the remembered answers that are due: left ungraded when a chat ended, a judge failed or hone was killed.
    /// Second answers that are left to compare are compared, too
    #[arg(long, conflicts_with = "input")]
    pub(crate) due: bool,
    /// Only answers since TIME: 2026-01-31, 2026-01-31T18:30 (UTC), or an age such as 30m, 12h or 7d
    #[arg(long, value_name = "TIME", requires = "due", conflicts_with_all = ["query", "input"], value_parser = memory::moment)]
    pub(crate) since: Option<Timestamp>,
    /// Also grade answers that would otherwise stay without a score: grading was off, the judge wrote no verdict, or
    /// the likelihood judge stood in
    #[arg(long, requires = "due", conflicts_with_all = ["query", "input"])]
    pub(crate) regrade_null: bool,
    #[command(flatten)]
    pub(crate) batch: BatchFlags,
    #[command(flatten)]
    pub(crate) judge: JudgeFlag,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArguments {
    /// The question
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        required_unless_present = "input",
        conflicts_with = "input"
    )]
    pub(crate) query: Option<String>,
    /// First answer
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        required_unless_present = "input",
        conflicts_with = "input"
    )]
    pub(crate) a: Option<String>,
    /// Second answer
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        required_unless_present = "input",
        conflicts_with = "input"
    )]
    pub(crate) b: Option<String>,
    #[command(flatten)]
    pub(crate) batch: BatchFlags,
    #[command(flatten)]
    pub(crate) judge: JudgeFlag,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone verdict`.
#[derive(Debug, Args)]
pub(crate) struct VerdictArguments {
    /// Kind of verdict: a score or a winner
    #[arg(long, value_enum)]
    pub(crate) mode: VerdictMode,
    /// Accepted for scripts: the output is always JSON
    #[arg(long, hide = true)]
    json: bool,
}

/// The kind of verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum VerdictMode {
    /// A score from 1 to 5.
    Absolute,
    /// A or B.
    Pairwise,
}

/// Flags of `hone synth`.
#[derive(Debug, Args)]
pub(crate) struct SynthArguments {
    /// Architecture and size, such as mistral-7b, qwen3-30b-a3b or gpt-oss-20b
    #[arg(long)]
    pub(crate) shape: String,
    /// Type of the weights, such as q4_k_m, mxfp4_moe, q8_0, f16 or f32
    #[arg(long, default_value = "q4_k_m")]
    pub(crate) quant: String,
    /// GGUF file to write
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Take the tokenizer from this model
    #[arg(long, value_name = "MODEL")]
    pub(crate) tokenizer: Option<String>,
    /// Random seed; the same seed gives the same weights
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Context length in tokens; defaults to the shape's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) context: Option<u32>,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone list`.
#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// Also list catalog models that are not installed, whether they fit this machine, and roughly how fast they run
    #[arg(short, long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    /// Name or path of the model
    #[arg(value_name = "MODEL")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArguments {
    /// Names of installed models
    #[arg(value_name = "MODEL", required_unless_present = "kv")]
    pub(crate) names: Vec<String>,
    /// Remove the KV caches of saved conversations, which then take longer to resume
    #[arg(long)]
    pub(crate) kv: bool,
    /// Do not ask for confirmation, even if a running hone uses the model
    #[arg(short, long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone bundle`.
#[derive(Debug, Args)]
pub(crate) struct BundleArguments {
    /// Model to include; may be repeated
    #[arg(short, long = "model", value_name = "MODEL", required = true)]
    pub(crate) models: Vec<String>,
    /// Executable to write
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone story`.
#[derive(Debug, Args)]
pub(crate) struct StoryArguments {
    /// The subcommand.
    #[command(subcommand)]
    pub(crate) command: StoryCommand,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}

/// Subcommands of `hone story`.
#[derive(Debug, Subcommand)]
pub(crate) enum StoryCommand {
    /// Run stories, each with a fresh memory that is removed afterwards
    Run(StoryRunArguments),
}

/// Flags of `hone story run`.
#[derive(Debug, Args)]
pub(crate) struct StoryRunArguments {
    /// Story files
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Also verify every byte of the installed and bundled models against their hashes, and measure the cost of a grade
    #[arg(long)]
    pub(crate) deep: bool,
    /// Check instead that concurrent answers do not leak into each other: requests with secrets must get bit-identical
    /// answers alone and together. Uses the engine of a running server, if there is one
    #[arg(long, conflicts_with = "deep")]
    isolation: bool,
    /// The same check of a running server over HTTP: the holder of one key must learn nothing about requests made with
    /// another key from answers, memory, events, figures or timing. The server then forgets the answers to the check
    #[arg(long, value_name = "ADDRESS", requires = "keys", conflicts_with = "deep")]
    pub(crate) server: Option<String>,
    /// File with two or more of the server's keys, one per line (- for stdin)
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(crate) keys: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

impl DoctorArguments {
    /// Whether it is checked that answers do not leak into each other, instead of this machine.
    pub(crate) fn checks_isolation(&self) -> bool {
        self.isolation || self.server.is_some()
    }
}

/// Flags of `hone completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// Shell to print completions for
    pub(crate) shell: Shell,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use hone_app::judging::{BatchTask, SETTING, columns};
    use hone_judging::{CompareTask, GradeTask};

    use super::*;

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(std::iter::once("hone").chain(line.split_whitespace()))
    }

    /// The overrides from a command line.
    #[track_caller]
    fn check(line: &str, expected: &[&str]) {
        let overrides = parse(line).unwrap().overrides();
        let seen: Vec<String> =
            overrides.iter().map(|over| format!("{} {}={}", over.flag, over.key, over.value)).collect();
        assert_eq!(seen, expected, "{line}");
    }

    /// Checks that a command line is refused with an error that contains a word.
    #[track_caller]
    fn check_refused(line: &str, word: &str) {
        let error = parse(line).unwrap_err().to_string();
        assert!(error.contains(word), "{line}: {error}");
    }

    #[test]
    fn clap_finds_no_fault_with_the_commands() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn flags_become_overrides_of_their_keys() {
        check("chat", &[]);
        check("chat hello --model qwen3:4b", &["--model engine.model=\"qwen3:4b\""]);
        check(
            "chat --context 0 --threads 4 --system Hi",
            &["--threads engine.threads=4", "--context engine.context=0", "--system chat.system=\"Hi\""],
        );
        check(
            "generate --temperature 0 --presence-penalty -0.5 --seed 7 --stop A --stop B",
            &[
                "--temperature sampling.temperature=0.0",
                "--presence-penalty sampling.presence_penalty=-0.5",
                "--seed sampling.seed=7",
                "--stop sampling.stop=[\"A\", \"B\"]",
            ],
        );
        check("generate --logit-bias 4=-2", &["--logit-bias sampling.logit_bias=[\"4=-2\"]"]);
        check("tokenize --model x.gguf --no-bos", &["--model engine.model=\"x.gguf\""]);
        check("perplexity --file f --context 64", &[]);
        check("bench -p 0 -n 8 -r 1 --device cuda:1", &["--device engine.device=\"cuda:1\""]);
        check(
            "bench contention --judge j --backend candle --threads 2 --context 2048",
            &["--backend engine.backend=\"candle\"", "--threads engine.threads=2", "--context engine.context=2048"],
        );
        check("bench sharing --model x.gguf", &["--model engine.model=\"x.gguf\""]);
        check(
            "chat --no-grade --rubric honesty --judge j --memory off",
            &[
                "--no-grade chat.grade=false",
                "--judge judge.model=\"j\"",
                "--judge judge.models=[]",
                "--rubric judge.rubric=\"honesty\"",
                "--memory memory.mode=\"off\"",
                "--memory memory.remember=false",
            ],
        );
        check("chat --grade --respondent-b --temperature-b 0.7", &["--grade chat.grade=true"]);
        check("chat --speculation off", &["--speculation engine.speculation=\"off\""]);
        check("generate --draft smollm2:135m", &["--draft engine.draft=\"smollm2:135m\""]);
        check("config --backend native", &["--backend engine.backend=\"native\""]);
        check(
            "grade --query Q --answer -5 --judge x.gguf --rubric honesty --threads 2",
            &[
                "--threads engine.threads=2",
                "--judge judge.model=\"x.gguf\"",
                "--judge judge.models=[]",
                "--rubric judge.rubric=\"honesty\"",
            ],
        );
        let alone = ["--judge judge.model=\"x\"", "--judge judge.models=[]"];
        check("compare --input a --output b --judge x", &alone);
        check("grade --due --judge x --judge y", &["--judge judge.models=[\"x\", \"y\"]"]);
        check("verdict --mode pairwise", &[]);
    }

    #[test]
    fn flags_that_contradict_each_other_are_refused() {
        check_refused("generate --regex a --choice b", "cannot be used with");
        check_refused("generate --parse-special", "--raw");
        check_refused("tokenize --decode --no-bos", "cannot be used with");
        check_refused("bundle --output x", "--model");
        check_refused("chat --grade --no-grade", "cannot be used with");
        check_refused("chat --model-b x", "--respondent-b");
        check_refused("story run", "FILE");
        check_refused("rm", "MODEL");
        check_refused("bench contention --judge j --model a --generator b", "cannot be used with");
        check_refused("grade --query Q", "--answer");
        check_refused("grade --output y", "--input");
        check_refused("grade --input x --output y --query Q", "cannot be used with");
        check_refused("compare --query Q --a A", "--b");
        check_refused("verdict", "--mode");
        check_refused("bench --sweep x.toml --depth 4", "cannot be used with");
        check_refused("bench --output folder", "--sweep");
        check_refused("chat --threads many", "--threads");
        check_refused("memory list --scored --unscored", "cannot be used with");
        check_refused("memory list --min-score 6", "1..=5");
        check_refused("memory list --since tomorrow", "12h");
        check_refused("memory rm", "ID");
        check_refused("events --type critique", "critique.result");
        check_refused("", "Usage");
    }

    #[test]
    fn resume_takes_a_name_or_none() {
        let resume = |line| match parse(line).unwrap().command {
            Command::Chat(arguments) => (arguments.question(), arguments.resume),
            other => panic!("{other:?}"),
        };
        let some = |text: &str| Some(text.to_string());
        assert_eq!(resume("chat"), (None, None));
        assert_eq!(resume("chat --resume"), (None, some("")));
        assert_eq!(resume("chat --resume tides"), (None, some("tides")));
        assert_eq!(resume("chat Why? --resume"), (some("Why?"), some("")));
    }

    #[test]
    fn the_words_of_a_question_need_no_quotes() {
        let chat = |line| match parse(line).unwrap().command {
            Command::Chat(chat) | Command::Run(RunArguments { chat, .. }) => chat,
            other => panic!("{other:?}"),
        };
        assert_eq!(chat("chat What is it? --grade").question().as_deref(), Some("What is it?"));
        assert_eq!(chat("chat -c").question(), None);
        assert!(chat("chat -c And why?").goes_on);
        assert_eq!(chat("run qwen3:4b What is it?").question().as_deref(), Some("What is it?"));
        check("run qwen3:4b", &["hone run MODEL engine.model=\"qwen3:4b\""]);
        check_refused("run qwen3:4b --model x", "cannot be used with");
        check_refused("chat -c --resume x", "cannot be used with");
        check_refused("run", "<MODEL>");
    }

    #[test]
    fn a_text_with_spaces_is_a_question() {
        let spelled = |words: &[&str]| {
            let words = words.iter().map(Into::into).collect();
            spelled_out(words).into_iter().map(|word| word.into_string().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(spelled(&["hone", "What is it?", "--grade"]), ["hone", "chat", "What is it?", "--grade"]);
        assert_eq!(spelled(&["hone", "-v", "What is it?"]), ["hone", "-v", "chat", "What is it?"]);
        assert_eq!(spelled(&["hone", "why?"]), ["hone", "chat", "why?"]);
        assert_eq!(spelled(&["hone", "Hello"]), ["hone", "chat", "Hello"]);
        assert_eq!(spelled(&["hone", "hello!"]), ["hone", "chat", "hello!"]);
        assert_eq!(spelled(&["hone", "今天天气怎么样"]), ["hone", "chat", "今天天气怎么样"]);
        for other in [&["hone"][..], &["hone", "list", "a b"], &["hone", "lits"], &["hone", "--model", "a b"]] {
            assert_eq!(spelled(other), other);
        }
    }

    #[track_caller]
    fn check_columns<T: BatchTask>(command: &str) {
        let arguments = Arguments::command();
        let help = arguments.find_subcommand(command).unwrap().get_after_help().unwrap().to_string();
        let (_, told) = help.split_once("which are not allowed: ").unwrap();
        let told: Vec<&str> = told.trim_end_matches('.').split(',').map(str::trim).collect();
        let columns = columns::<T>();
        let written: Vec<&str> = columns.keys().map(String::as_str).chain([SETTING]).collect();
        assert_eq!(told, written);
    }

    #[test]
    fn the_help_names_the_keys_that_a_line_may_not_have() {
        check_columns::<GradeTask>("grade");
        check_columns::<CompareTask>("compare");
    }
}
