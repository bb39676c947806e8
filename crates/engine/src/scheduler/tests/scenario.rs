//! Scenarios as text. A block of commands comes above a line of dashes, and their output below it, up to an empty line.
//! `REWRITE=1 cargo test` writes the current output into the files; review it before committing.
//!
//! | command | effect |
//! | --- | --- |
//! | `settings chunk=20ms background=5% batch=2% queue=4,4,4 patience=30s sequences=8 prefill=512` | before any model |
//! | `model NAME blocks=N cost=STEP,TOKEN,SEQUENCE,POSITION [guess=…] [slices=N]` | loads a model |
//! | `arrive ID MODEL LANE prompt=N answer=N [most=N] [session=NAME] [limit=TIME] [cached=N] [follows=ID:N]` | a request |
//! | `cancel ID…`, `pin MODEL blocks=N`, `unload MODEL` | |
//! | `park MODEL`, `back MODEL blocks=N` | the model leaves memory while its requests wait; both return |
//! | `time TIME` | lets time pass |
//! | `step [N] [arrival=TIME]` | N steps, or as many as there are; a request arrives this long after the beginning |
//! | `measure MODEL prefill=N decode=N attended=N` | prints the expected time of a step of this shape |
//! | `queue`, `counts`, `blocks MODEL` | prints the queue, the counts, the reserved blocks |

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use crate::scheduler::cost::{CostModel, StepShape};
use crate::scheduler::{Arrival, ModelId, ParkedRequest, Pause, RequestId, SchedulerSettings, StepKind, Turn};
use hone_protocol::{Lane, SessionId};

use super::simulator::{Device, Done, Simulated, Simulator};

#[test]
fn every_scenario_goes_as_it_is_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/scheduler/tests");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    assert!(files.len() >= 10, "the scenarios are there");
    for path in files {
        check(&path);
    }
}

fn check(path: &Path) {
    let written = std::fs::read_to_string(path).unwrap();
    let played = play(&written);
    if std::env::var_os("REWRITE").is_some() {
        std::fs::write(path, played).unwrap();
    } else if played != written {
        let (at, (now, before)) = std::iter::zip(played.lines(), written.lines())
            .enumerate()
            .find(|(_, (now, before))| now != before)
            .unwrap_or((0, ("another length", "")));
        panic!("{}:{}: {before:?} is now {now:?}; REWRITE=1 writes what happens now", path.display(), at + 1);
    }
}

/// The scenario with its current output.
fn play(text: &str) -> String {
    let mut scenario = Scenario::new();
    let mut played = String::new();
    for block in text.trim_end().split("\n\n") {
        let commands = block.split("\n----").next().unwrap();
        played.push_str(commands);
        let mut printed = String::new();
        for line in commands.lines().filter(|line| !line.starts_with('#')) {
            scenario.run(line, &mut printed);
        }
        if commands.lines().any(|line| !line.starts_with('#')) {
            write!(played, "\n----\n{printed}").unwrap();
        } else {
            played.push('\n');
        }
        played.push('\n');
    }
    played.trim_end().to_owned() + "\n"
}

struct Scenario {
    simulator: Simulator,
    models: Vec<String>,
    sessions: Vec<String>,
    parked: Vec<ParkedRequest>,
}

/// A command's words and its `name=value` options.
struct Words<'a> {
    words: Vec<&'a str>,
    options: BTreeMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    fn of(line: &'a str) -> Self {
        let (options, words) = line.split_whitespace().partition::<Vec<&str>, _>(|word| word.contains('='));
        Words { words, options: options.into_iter().map(|option| option.split_once('=').unwrap()).collect() }
    }

    fn get<T: FromStr>(&self, name: &str) -> Option<T> {
        let parse = |text: &&str| text.parse().unwrap_or_else(|_| panic!("{name}={text} cannot be read"));
        self.options.get(name).map(parse)
    }

    fn time(&self, name: &str) -> Option<Duration> {
        self.options.get(name).map(|text| time(text))
    }
}

fn time(text: &str) -> Duration {
    let (number, unit) = match text.strip_suffix("us") {
        Some(number) => (number, 1e-6),
        None => match text.strip_suffix("ms") {
            Some(number) => (number, 1e-3),
            None => (text.strip_suffix('s').unwrap_or(text), 1.0),
        },
    };
    Duration::from_secs_f64(number.parse::<f64>().unwrap_or_else(|_| panic!("{text} is no time")) * unit)
}

fn share(text: &str) -> f64 {
    text.trim_end_matches('%').parse::<f64>().unwrap() / 100.0
}

fn cost(text: &str) -> CostModel {
    let seconds: Vec<f64> = text.split(',').map(|part| time(part).as_secs_f64()).collect();
    CostModel::with_coefficients(seconds.try_into().unwrap())
}

fn lane(text: &str) -> Lane {
    Lane::ALL.into_iter().find(|lane| lane.name() == text).unwrap_or_else(|| panic!("no lane {text}"))
}

fn ids(ids: &[RequestId]) -> String {
    ids.iter().map(|id| id.0.to_string()).collect::<Vec<_>>().join(" ")
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

impl Scenario {
    fn new() -> Self {
        let simulator = Simulator::new(SchedulerSettings::default());
        Scenario { simulator, models: Vec::new(), sessions: Vec::new(), parked: Vec::new() }
    }

    fn run(&mut self, line: &str, printed: &mut String) {
        let words = Words::of(line);
        match words.words[0] {
            "settings" => self.settings(&words),
            "model" => self.model(&words),
            "arrive" => self.arrive(&words, printed),
            "cancel" => words.words[1..].iter().for_each(|id| self.simulator.cancel(RequestId(id.parse().unwrap()))),
            "pin" => {
                let (model, n_blocks) = (self.find(words.words[1]), words.get("blocks").unwrap());
                self.simulator.scheduler.set_pinned_blocks(model, n_blocks);
            }
            "unload" => {
                let gone = self.simulator.scheduler.remove_model(self.find(words.words[1]));
                writeln!(printed, "gone {}", ids(&gone)).unwrap();
            }
            "park" => {
                self.parked = self.simulator.park(self.find(words.words[1]));
                let parked: Vec<RequestId> = self.parked.iter().map(ParkedRequest::id).collect();
                writeln!(printed, "parked {}", ids(&parked)).unwrap();
            }
            "back" => {
                let (model, n_blocks) = (self.find(words.words[1]), words.get("blocks").unwrap());
                self.simulator.bring_back(model, n_blocks, std::mem::take(&mut self.parked));
            }
            "time" => self.simulator.now += time(words.words[1]),
            "step" => self.steps(&words, printed),
            "measure" => self.measure(&words, printed),
            "queue" => self.queue(printed),
            "counts" => self.counts(printed),
            "blocks" => {
                let n_blocks = self.simulator.scheduler.reserved_blocks(self.find(words.words[1]));
                writeln!(printed, "{n_blocks} blocks reserved").unwrap();
            }
            other => panic!("no command {other}"),
        }
    }

    fn settings(&mut self, words: &Words<'_>) {
        let mut settings = SchedulerSettings::default();
        settings.chunk = words.time("chunk").unwrap_or(settings.chunk);
        settings.interactive_chunk = words.time("interactive_chunk").unwrap_or(settings.interactive_chunk);
        settings.patience = words.time("patience").unwrap_or(settings.patience);
        settings.sequences = words.get("sequences").unwrap_or(settings.sequences);
        settings.prefill_tokens = words.get("prefill").unwrap_or(settings.prefill_tokens);
        if let Some(text) = words.options.get("background") {
            settings.background_share = share(text);
        }
        if let Some(text) = words.options.get("batch") {
            settings.batch_share = share(text);
        }
        if let Some(text) = words.options.get("queue") {
            let limits: Vec<usize> = text.split(',').map(|limit| limit.parse().unwrap()).collect();
            settings.queue_limits = limits.try_into().unwrap();
        }
        self.simulator = Simulator::new(settings);
    }

    fn model(&mut self, words: &Words<'_>) {
        let model = ModelId(u32::try_from(self.models.len()).unwrap());
        self.models.push(words.words[1].to_owned());
        let real = cost(words.options["cost"]);
        let guess = words.options.get("guess").map_or_else(|| real.clone(), |text| cost(text));
        let device = Device { cost: real, slices: words.get("slices").unwrap_or(1) };
        self.simulator.add_model(model, device, words.get("blocks").unwrap(), guess);
    }

    fn find(&self, name: &str) -> ModelId {
        let found = self.models.iter().position(|model| model == name);
        ModelId(u32::try_from(found.unwrap_or_else(|| panic!("no model {name}"))).unwrap())
    }

    fn session(&mut self, name: &str) -> SessionId {
        let found = self.sessions.iter().position(|session| session == name);
        let index = found.unwrap_or_else(|| {
            self.sessions.push(name.to_owned());
            self.sessions.len() - 1
        });
        SessionId::from_bits(index as u128)
    }

    fn arrive(&mut self, words: &Words<'_>, printed: &mut String) {
        let id = RequestId(words.words[1].parse().unwrap());
        let (prompt, answer) = (words.get("prompt").unwrap(), words.get("answer").unwrap());
        let arrival = Arrival {
            model: self.find(words.words[2]),
            lane: lane(words.words[3]),
            session: words.options.get("session").map(|name| self.session(name)),
            prompt_tokens: prompt,
            answer_tokens: words.get("most").unwrap_or(answer),
            time_limit: words.time("limit"),
            common_tokens: words.get("common").unwrap_or(0),
            conclusion_tokens: words.get("conclusion"),
            can_be_shortened: words.words.contains(&"shortenable"),
        };
        let mut request = Simulated::new(arrival.lane, prompt, answer);
        request.conclusion = words.get("conclusion").unwrap_or(answer);
        request.cached = words.get("cached").unwrap_or(0);
        request.leader = words.options.get("follows").map(|text| {
            let (leader, n_tokens) = text.split_once(':').unwrap();
            (RequestId(leader.parse().unwrap()), n_tokens.parse().unwrap())
        });
        if let Err(refusal) = self.simulator.arrive(id, arrival, request) {
            writeln!(printed, "refused {}: {refusal}", id.0).unwrap();
        }
    }

    fn steps(&mut self, words: &Words<'_>, printed: &mut String) {
        let most: usize = words.words.get(1).map_or(1000, |text| text.parse().unwrap());
        let arrival = words.time("arrival").map(|after| self.simulator.now + after);
        for _ in 0..most {
            let turn = self.simulator.turn();
            print_turn(&turn, printed);
            let before = self.simulator.now;
            let generated: BTreeMap<RequestId, usize> =
                self.simulator.requests.iter().map(|(id, request)| (*id, request.generated)).collect();
            let computed: BTreeMap<RequestId, usize> =
                self.simulator.requests.iter().map(|(id, request)| (*id, request.computed)).collect();
            let Some(done) = self.simulator.step(1.0, arrival) else { return };
            self.print_step(before, &done, &computed, &generated, printed);
        }
    }

    fn print_step(
        &self,
        before: Duration,
        done: &Done,
        computed: &BTreeMap<RequestId, usize>,
        generated: &BTreeMap<RequestId, usize>,
        printed: &mut String,
    ) {
        let verb = match done.plan.kind {
            StepKind::Begin => "",
            StepKind::Resume => " goes on",
        };
        let model = &self.models[done.plan.model.0 as usize];
        write!(printed, "{:>9}  {model}{verb}, {}:", milliseconds(before), milliseconds(done.elapsed)).unwrap();
        for entry in &done.plan.entries {
            let (position, generated) = (computed[&entry.request], generated[&entry.request]);
            let is_prompt = generated == 0 || entry.n_tokens > 1;
            let what = match is_prompt {
                true => format!("{}..{}", position, position + entry.n_tokens),
                false => format!("token {}", generated + 1),
            };
            let tail = if is_prompt && entry.wants_logits { "*" } else { "" };
            write!(printed, " [{} {what}{tail}]", entry.request.0).unwrap();
        }
        match (done.is_suspended, done.plan.pause) {
            (true, Pause::After(_)) => write!(printed, " suspended for more urgent work").unwrap(),
            (true, _) => write!(printed, " suspended on arrival").unwrap(),
            _ => {}
        }
        if !done.ended.is_empty() {
            write!(printed, " ends {}", ids(&done.ended)).unwrap();
        }
        printed.push('\n');
    }

    fn measure(&self, words: &Words<'_>, printed: &mut String) {
        let shape = StepShape {
            prefill_tokens: words.get("prefill").unwrap_or(0),
            decode_sequences: words.get("decode").unwrap_or(0),
            positions_attended: words.get("attended").unwrap_or(0),
        };
        let cost = self.simulator.scheduler.cost(self.find(words.words[1])).unwrap();
        writeln!(printed, "{:.1} ms", cost.seconds(shape) * 1e3).unwrap();
    }

    fn queue(&self, printed: &mut String) {
        for queued in self.simulator.scheduler.queue(self.simulator.now) {
            let (lane, wait) = (queued.lane.name(), milliseconds(queued.wait));
            writeln!(printed, "{}: {lane} {}, {wait}", queued.request.0, queued.position).unwrap();
        }
    }

    fn counts(&self, printed: &mut String) {
        for summary in self.simulator.scheduler.metrics().summary() {
            if summary.counts.arrived == 0 {
                continue;
            }
            let seconds = |seconds: f64| milliseconds(Duration::from_secs_f64(seconds));
            let counts: BTreeMap<String, u64> =
                serde_json::from_value(serde_json::to_value(summary.counts).unwrap()).unwrap();
            let counts: Vec<String> = counts.iter().map(|(name, n)| format!("{name} {n}")).collect();
            writeln!(printed, "{}: {}", summary.lane.name(), counts.join(", ")).unwrap();
            let times = [summary.queue_time, summary.time_to_first_token, summary.time_between_tokens];
            let [queue, first, between] = times.map(|time| format!("{} {}", time.n, seconds(time.longest_seconds)));
            writeln!(printed, "  queue {queue}, first token {first}, between tokens {between}").unwrap();
        }
    }
}

fn print_turn(turn: &Turn, printed: &mut String) {
    for (id, room) in &turn.too_slow {
        writeln!(printed, "too slow {}, room for {room}", id.0).unwrap();
    }
    let named = [
        ("expires", &turn.expired),
        ("concludes", &turn.concluding),
        ("drops", &turn.dropped),
        ("starts", &turn.starting),
    ];
    for (verb, requests) in named.into_iter().filter(|(_, requests)| !requests.is_empty()) {
        writeln!(printed, "{verb} {}", ids(requests)).unwrap();
    }
}
