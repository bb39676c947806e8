//! Requests that share the device and computed prefixes: lanes, prefixes, limits, memory, and a check that nothing is
//! lost however many come and go.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use hone_engine::{
    BLOCK_TOKENS, EngineHandle, EngineOptions, EngineStatus, ModelOptions, ModelState, SchedulerSettings,
};
use hone_protocol::{
    Completion, Constraint, FinishReason, Generate, GenerateError, GenerateRequest, Generation, GenerationEvent, Lane,
    LocateError, LocateModel, Message, ModelFile, OwnerId, Prompt, Role,
};

use crate::support::{self, tokens};

/// An engine, and small models of random weights for it.
struct Fixture {
    engine: EngineHandle,
    options: EngineOptions,
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new(model: ModelOptions) -> Self {
        Self::with(EngineOptions::from(model))
    }

    fn with(options: EngineOptions) -> Self {
        let folder = support::scratch();
        for shape in ["tiny-llama", "tiny-qwen3"] {
            support::synthesize(shape, "q8_0", &folder.path().join(shape));
        }
        Fixture { engine: support::engine_with(options.clone()), options, folder }
    }

    /// A short answer to a prompt of these tokens.
    fn request(&self, prompt: Vec<u32>) -> GenerateRequest {
        GenerateRequest {
            max_tokens: Some(12),
            ..GenerateRequest::new(self.model("tiny-llama"), Prompt::Tokens(prompt))
        }
    }

    fn request_on(&self, shape: &str) -> GenerateRequest {
        GenerateRequest { model: self.model(shape), ..self.request(tokens(1, 20)) }
    }

    fn model(&self, shape: &str) -> String {
        path_name(&self.folder.path().join(shape))
    }

    fn start(&self, request: GenerateRequest) -> Generation {
        self.engine.generate(request).unwrap()
    }

    fn complete(&self, request: GenerateRequest) -> Completion {
        self.start(request).complete().unwrap()
    }

    /// The answer of an engine that has processed nothing else.
    fn fresh(&self, request: GenerateRequest) -> Completion {
        support::engine_with(self.options.clone()).generate(request).unwrap().complete().unwrap()
    }

    fn status(&self) -> EngineStatus {
        self.engine.status().unwrap()
    }

    /// Checks that nothing is left of any request except the blocks kept for others.
    fn check_balanced(&self) {
        let status = self.status();
        for model in &status.models {
            assert_eq!((model.requests, model.reserved_blocks), (0, 0), "{model:?}");
            assert_eq!(model.cache.free + model.cache.kept, model.cache.capacity, "{model:?}");
        }
        assert!(status.queue.is_empty());
        for lane in &status.lanes {
            let counts = lane.metrics.counts;
            assert_eq!((lane.queued, lane.running), (0, 0));
            assert_eq!(
                counts.arrived,
                counts.finished + counts.cancelled + counts.failed + counts.refused + counts.timed_out
            );
        }
    }
}

fn path_name(path: &Path) -> String {
    PathBuf::from(path).to_str().unwrap().to_owned()
}

#[test]
fn the_next_turn_computes_only_what_is_new() {
    let fixture = Fixture::new(support::options());
    let first = fixture.complete(fixture.request(tokens(1, 200)));
    assert_eq!(first.timings.cached_tokens, 0);
    let next = [tokens(1, 200), first.token_ids.clone(), tokens(2, 30)].concat();
    let second = fixture.complete(fixture.request(next.clone()));
    // The last token of an answer is never computed.
    assert_eq!(second.timings.cached_tokens, 200 + first.token_ids.len() - 1);
    assert_eq!(second.token_ids, fixture.fresh(fixture.request(next)).token_ids);
    fixture.check_balanced();
}

#[test]
fn respondents_of_one_question_share_its_prompt() {
    let fixture = Fixture::new(support::options());
    let request = |lane| GenerateRequest { lane, ..fixture.request(tokens(1, 450)) };
    let expected = fixture.fresh(request(Lane::Interactive)).token_ids;
    let running: Vec<Generation> = (0..3).map(|_| fixture.start(request(Lane::Background))).collect();
    let completions: Vec<Completion> = running.into_iter().map(|generation| generation.complete().unwrap()).collect();
    let mut cached: Vec<usize> = completions.iter().map(|completion| completion.timings.cached_tokens).collect();
    cached.sort_unstable();
    assert_eq!(cached, [0, 449, 449]);
    assert!(completions.iter().all(|completion| completion.token_ids == expected));
    fixture.check_balanced();
}

#[test]
fn what_is_computed_for_one_owner_helps_no_other() {
    let fixture = Fixture::new(support::options());
    let owners = [Some(OwnerId::fresh()), Some(OwnerId::fresh()), None];
    let request = |owner| GenerateRequest { owner, ..fixture.request(tokens(1, 60)) };
    let cached = |completion: Completion| completion.timings.cached_tokens;
    let running = owners.map(|owner| fixture.start(request(owner)));
    assert_eq!(running.map(|generation| cached(generation.complete().unwrap())), [0; 3], "while the others compute it");
    let fourth = fixture.complete(request(Some(OwnerId::fresh())));
    assert_eq!(cached(fourth), 0, "after the others have computed it");
    assert_eq!(owners.map(|owner| cached(fixture.complete(request(owner)))), [59; 3], "what it has computed itself");
    fixture.check_balanced();
}

#[test]
fn less_urgent_requests_answer_the_same_between_urgent_ones() {
    let fixture = Fixture::new(support::options());
    let qwen = fixture.model("tiny-qwen3");
    let judge =
        |index| GenerateRequest { lane: Lane::Background, model: qwen.clone(), ..fixture.request(tokens(index, 150)) };
    let batch = |index| GenerateRequest { lane: Lane::Batch, ..fixture.request(tokens(50 + index, 90)) };
    let chat = |index| fixture.request(tokens(100 + index, 40));
    let expected: Vec<Vec<u32>> = (0..4)
        .flat_map(|index| [judge(index), batch(index), chat(index)])
        .map(|request| fixture.fresh(request).token_ids)
        .collect();
    let running: Vec<Generation> = (0..4)
        .flat_map(|index| {
            let begun = [fixture.start(judge(index)), fixture.start(batch(index))];
            // The others are running when the urgent one comes.
            begun[0].events().recv().unwrap();
            begun.into_iter().chain([fixture.start(chat(index))])
        })
        .collect();
    let answers: Vec<Vec<u32>> =
        running.into_iter().map(|generation| generation.complete().unwrap().token_ids).collect();
    assert_eq!(answers, expected);
    fixture.check_balanced();
}

#[test]
fn a_request_that_loses_its_place_goes_on_where_it_was() {
    let options = ModelOptions { context_length: Some(256), n_sequences: 1, ..support::options() };
    let fixture = Fixture::new(options);
    let long = |lane| GenerateRequest { lane, max_tokens: Some(100), ..fixture.request(tokens(1, 100)) };
    let expected = fixture.fresh(long(Lane::Background));
    let background = fixture.start(long(Lane::Background));
    let has_token = |event: GenerationEvent| matches!(event, GenerationEvent::Token { .. });
    assert!(background.events().iter().take(20).any(has_token), "it has begun to answer");
    let urgent = GenerateRequest { max_tokens: Some(100), ..fixture.request(tokens(2, 100)) };
    assert_eq!(fixture.complete(urgent).token_ids.len(), 100);
    let mut rest = Completion::default();
    while !rest.take(background.events().recv().unwrap()).unwrap() {}
    assert!(expected.text.ends_with(&rest.text) && !rest.text.is_empty());
    assert_eq!(fixture.status().lanes[1].metrics.counts.preemptions, 1);
    fixture.check_balanced();
}

#[test]
fn a_time_limit_ends_a_request_that_runs() {
    let fixture = Fixture::new(support::options());
    let limit = Duration::from_millis(1);
    let request = GenerateRequest { time_limit: Some(limit), max_tokens: None, ..fixture.request(tokens(1, 20)) };
    assert_eq!(fixture.start(request).complete().unwrap_err(), GenerateError::TimedOut { limit });
    let unhurried = GenerateRequest { time_limit: Some(Duration::from_secs(600)), ..fixture.request(tokens(1, 20)) };
    let completion = fixture.complete(unhurried);
    assert_eq!(completion.finish_reason, Some(FinishReason::Length));
    assert!(completion.timings.queue_seconds >= 0.0 && completion.timings.prompt_seconds > 0.0);
    fixture.check_balanced();
}

/// More tokens are said to follow the free text than any machine has time for.
#[test]
fn an_answer_whose_time_runs_short_is_concluded() {
    let fixture = Fixture::new(support::options());
    let (marker, regex) = ("[RESULT]".to_owned(), " [1-5]".to_owned());
    let request = GenerateRequest {
        constraint: Some(Constraint::FreeThenRegex { free_tokens: 400, marker, regex }),
        max_tokens: Some(440),
        time_limit: Some(Duration::from_secs(600)),
        ..fixture.request(tokens(1, 20))
    };
    let whole = fixture.complete(request.clone());
    assert_eq!(whole.finish_reason, Some(FinishReason::Stop));
    let hurried = fixture.complete(GenerateRequest { conclusion_tokens: Some(1_000_000_000), ..request });
    assert_eq!(hurried.finish_reason, Some(FinishReason::Concluded), "{:?}", hurried.text);
    let (free, _) = hurried.text.split_once("[RESULT] ").unwrap();
    assert!(whole.text.starts_with(free) && hurried.token_ids.len() < 60, "{:?}", hurried.text);
    fixture.check_balanced();
}

#[test]
fn a_full_queue_refuses_and_says_when_to_try_again() {
    let scheduler = SchedulerSettings { sequences: 1, queue_limits: [1, 1, 1], ..SchedulerSettings::default() };
    let fixture = Fixture::with(EngineOptions { scheduler, ..support::options().into() });
    let endless = || GenerateRequest { max_tokens: None, ..fixture.request(tokens(1, 20)) };
    let first = fixture.start(endless());
    let is_token = |event: GenerationEvent| matches!(event, GenerationEvent::Token { .. });
    assert!(first.events().iter().any(is_token));
    let second = fixture.start(endless());
    let third = fixture.start(endless()).complete();
    match third.unwrap_err() {
        GenerateError::Busy { lane: Lane::Interactive, queued: 1, retry_after } => {
            assert!(retry_after > Duration::ZERO)
        }
        other => panic!("{other}"),
    }
    let status = fixture.status();
    assert_eq!((status.queue.len(), status.queue[0].position), (1, 1));
    assert_eq!(status.lanes[0].metrics.counts.refused, 1);
    drop((first, second));
    assert_eq!(fixture.complete(fixture.request(tokens(1, 20))).token_ids.len(), 12);
    fixture.check_balanced();
}

/// An engine with room for the weights of one model, and a context or two.
fn room_for_one_model(options: EngineOptions) -> Fixture {
    let folder = support::scratch();
    support::synthesize("tiny-llama", "q8_0", &folder.path().join("any"));
    let weights = folder.path().join("any").metadata().unwrap().len();
    let model = ModelOptions { context_length: Some(256), n_sequences: 4, ..support::options() };
    Fixture::with(EngineOptions { model, memory: Some(weights + weights / 2), ..options })
}

fn wait_for_a_token(generation: &Generation) {
    let is_token = |event: GenerationEvent| matches!(event, GenerationEvent::Token { .. });
    assert!(generation.events().iter().any(is_token));
}

#[test]
fn models_share_one_budget_and_idle_ones_make_room() {
    let fixture = room_for_one_model(EngineOptions::default());
    fixture.complete(fixture.request(tokens(1, 20)));
    fixture.complete(fixture.request_on("tiny-qwen3"));
    let status = fixture.status();
    assert_eq!(status.models.len(), 1, "the idle one has gone: {status:?}");
    assert!(status.models[0].name.ends_with("tiny-qwen3") && status.models[0].state == ModelState::Ready);
    assert!(status.models[0].weight_bytes + status.models[0].kv_cache_bytes <= status.memory_budget.unwrap());
    fixture.check_balanced();
}

#[test]
fn a_model_takes_a_smaller_cache_where_another_stays_for_that() {
    let model = ModelOptions { context_length: Some(256), n_sequences: 4, ..support::options() };
    let unbounded = Fixture::new(model.clone());
    unbounded.complete(unbounded.request(tokens(1, 20)));
    unbounded.complete(unbounded.request_on("tiny-qwen3"));
    let [llama, qwen] = unbounded.status().models.try_into().unwrap();
    let memory = llama.weight_bytes + llama.kv_cache_bytes + qwen.weight_bytes + qwen.kv_cache_bytes / 4;
    let fixture = Fixture::with(EngineOptions { model, memory: Some(memory), ..EngineOptions::default() });
    fixture.complete(fixture.request(tokens(1, 20)));
    fixture.complete(fixture.request_on("tiny-qwen3"));
    let [other, smaller] = fixture.status().models.try_into().unwrap();
    assert_eq!((other.kv_cache_bytes, smaller.kv_cache_bytes), (llama.kv_cache_bytes, qwen.kv_cache_bytes / 4));
}

#[test]
fn a_model_waits_while_another_is_used_as_urgently() {
    let scheduler = SchedulerSettings { queue_limits: [2, 2, 2], ..SchedulerSettings::default() };
    let fixture = room_for_one_model(EngineOptions { scheduler, ..EngineOptions::default() });
    let busy = fixture.start(GenerateRequest { max_tokens: None, ..fixture.request(tokens(1, 20)) });
    wait_for_a_token(&busy);
    let waiting = [0; 2].map(|_| fixture.start(fixture.request_on("tiny-qwen3")));
    let refused = fixture.start(fixture.request_on("tiny-qwen3")).complete().unwrap_err();
    assert!(matches!(refused, GenerateError::Busy { lane: Lane::Interactive, queued: 2, .. }), "{refused}");
    let awaited = &fixture.status().models[1];
    assert_eq!((awaited.state, awaited.requests), (ModelState::Waiting, 2));
    drop(busy);
    for generation in waiting {
        assert_eq!(generation.complete().unwrap().token_ids.len(), 12);
    }
    fixture.check_balanced();
}

/// Finds models by path; each is loaded when the test says so.
struct HeldUp(Mutex<mpsc::Receiver<()>>);

impl LocateModel for HeldUp {
    fn locate(&self, name: &str) -> Result<ModelFile, LocateError> {
        Ok(support::whole(Path::new(name)))
    }

    fn verify(&self, _: &ModelFile) -> Result<(), LocateError> {
        let _ = self.0.lock().unwrap().recv();
        Ok(())
    }
}

#[test]
fn requests_that_are_cancelled_while_their_model_is_loaded_make_room_for_others() {
    let scheduler = SchedulerSettings { queue_limits: [1, 1, 1], ..SchedulerSettings::default() };
    let options = EngineOptions { scheduler, ..support::options().into() };
    let (load, held_up) = mpsc::channel();
    let mut fixture = Fixture::with(options.clone());
    fixture.engine = EngineHandle::start(options, Arc::new(HeldUp(Mutex::new(held_up)))).unwrap();
    let cancelled = fixture.start(fixture.request(tokens(1, 20)));
    let refused = fixture.start(fixture.request(tokens(2, 20))).complete().unwrap_err();
    assert!(matches!(refused, GenerateError::Busy { queued: 1, .. }), "{refused}");
    drop(cancelled);
    let accepted = fixture.start(fixture.request(tokens(3, 20)));
    load.send(()).unwrap();
    assert_eq!(accepted.complete().unwrap().token_ids.len(), 12);
    fixture.check_balanced();
}

#[test]
fn less_urgent_requests_give_up_their_model_and_go_on_when_it_is_back() {
    let fixture = room_for_one_model(EngineOptions::default());
    let long = || GenerateRequest {
        lane: Lane::Background,
        max_tokens: Some(200),
        time_limit: Some(Duration::from_secs(600)),
        ..fixture.request(tokens(1, 40))
    };
    let expected = fixture.fresh(long());
    let (background, cancelled) = (fixture.start(long()), fixture.start(long()));
    wait_for_a_token(&background);
    assert_eq!(fixture.complete(fixture.request_on("tiny-qwen3")).token_ids.len(), 12);
    drop(cancelled);
    let mut rest = Completion::default();
    while !rest.take(background.events().recv().unwrap()).unwrap() {}
    assert!(expected.text.ends_with(&rest.text) && rest.token_ids.len() > 100, "{} tokens", rest.token_ids.len());
    let counts = fixture.status().lanes[1].metrics.counts;
    assert!((1..=2).contains(&counts.preemptions), "{counts:?}");
    assert_eq!((counts.arrived, counts.finished), (2, 1));
    fixture.check_balanced();
}

#[test]
fn pinned_models_stay_and_others_are_refused_with_the_sums() {
    let folder = support::scratch();
    support::synthesize("tiny-llama", "q8_0", &folder.path().join("pinned"));
    let pinned = path_name(&folder.path().join("pinned"));
    let fixture = room_for_one_model(EngineOptions { pinned: vec![pinned.clone()], ..EngineOptions::default() });
    fixture.complete(GenerateRequest { model: pinned, ..fixture.request(tokens(1, 20)) });
    let error = fixture.start(fixture.request_on("tiny-qwen3")).complete().unwrap_err().to_string();
    assert!(error.contains("MiB") && error.contains("pinned"), "{error}");
    fixture.check_balanced();
}

/// With the same memory, a dense model of the same size is refused. The head of the second model guesses, and has
/// experts, too.
#[test]
fn experts_that_do_not_fit_are_read_from_the_file() {
    for shape in ["tiny-qwen3moe", "tiny-qwen35moe"] {
        check_experts_in_file(shape);
    }
}

#[track_caller]
fn check_experts_in_file(shape: &str) {
    let folder = support::scratch();
    let path = folder.path().join("mixture");
    support::synthesize_few_tokens(shape, "q8_0", &path);
    let weights = path.metadata().unwrap().len();
    let model = ModelOptions { context_length: Some(128), n_sequences: 1, ..support::options() };
    let request = |fixture: &Fixture| GenerateRequest {
        model: path_name(&path),
        ..fixture.request(support::of_few_tokens(1, 40))
    };
    let whole = Fixture::new(model.clone());
    let expected = whole.complete(request(&whole)).token_ids;
    let status = &whole.status().models[0];
    assert_eq!(status.weight_bytes, weights);
    let memory = Some(status.kv_cache_bytes + weights * 4 / 5);
    let within = Fixture::with(EngineOptions { model, memory, ..EngineOptions::default() });
    assert_eq!(within.complete(request(&within)).token_ids, expected);
    let status = within.status();
    assert_eq!(status.models[0].weight_bytes, weights * 4 / 5);
    assert!(status.memory_budget.unwrap() >= status.models[0].weight_bytes + status.models[0].kv_cache_bytes);
    within.check_balanced();
}

#[test]
fn a_model_answers_without_a_draft_for_which_there_is_no_memory() {
    let folder = support::scratch();
    support::synthesize("tiny-qwen3", "f32", &folder.path().join("draft"));
    let draft = Some(path_name(&folder.path().join("draft")));
    let fixture = room_for_one_model(EngineOptions { draft, ..EngineOptions::default() });
    assert_eq!(fixture.complete(fixture.request(tokens(1, 20))).token_ids.len(), 12);
    let weights = Path::new(&fixture.model("tiny-llama")).metadata().unwrap().len();
    assert_eq!(fixture.status().models[0].weight_bytes, weights);
}

#[test]
fn models_leave_that_nobody_uses() {
    let keep_alive = Some(Duration::from_millis(50));
    let fixture = Fixture::with(EngineOptions { keep_alive, ..support::options().into() });
    fixture.complete(fixture.request(tokens(1, 20)));
    // The pause itself is tested: a request for the status would wake the engine.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(fixture.status().models, []);
    assert_eq!(fixture.complete(fixture.request(tokens(1, 20))).token_ids.len(), 12, "it is loaded again");
}

#[test]
fn a_model_leaves_when_it_is_told_to() {
    let fixture = Fixture::with(EngineOptions { keep_alive: None, ..support::options().into() });
    let name = fixture.model("tiny-llama");
    fixture.engine.unload(&name).unwrap();
    fixture.complete(fixture.request(tokens(1, 20)));
    assert_eq!(fixture.status().models.len(), 1, "it was not there to leave");
    let generation = fixture.start(fixture.request(tokens(2, 20)));
    fixture.engine.unload(&name).unwrap();
    assert_eq!(generation.complete().unwrap().token_ids.len(), 12, "it answers before it leaves");
    support::wait_until("the model has left", || fixture.status().models.is_empty());
    fixture.complete(fixture.request(tokens(1, 20)));
    fixture.engine.unload(&name).unwrap();
    assert_eq!(fixture.status().models, []);
}

/// Consumes events; returns whether the request finished or was refused, or `None` if neither was seen.
fn use_up(generation: Generation, n_events: usize) -> Option<bool> {
    for _ in 0..n_events {
        match generation.events().recv().unwrap() {
            GenerationEvent::Finished { .. } => {
                assert!(generation.events().recv().is_err(), "nothing comes after the end");
                return Some(true);
            }
            GenerationEvent::Failed(GenerateError::Busy { .. }) => return Some(false),
            GenerationEvent::Failed(other) => panic!("{other}"),
            _ => {}
        }
    }
    None
}

/// `n_threads` threads request answers from two models in all lanes, one after the other, and cancel some. Every
/// request ends exactly once; returns how many were finished, cancelled and refused.
fn ask_from_many_threads(fixture: &Fixture, n_threads: u32, n_each: u32) -> [usize; 3] {
    let (n_finished, n_cancelled, n_refused) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let ask = |thread: u32, index: u32| {
        let seed = thread * 31 + index * 7;
        let lane = Lane::ALL[(seed % 3) as usize];
        let shape = if seed.is_multiple_of(5) { "tiny-qwen3" } else { "tiny-llama" };
        // Many share a beginning.
        let prompt = [tokens(seed % 4, 40 + (seed % 60) as usize), tokens(seed, 1 + (seed % 50) as usize)].concat();
        let request = GenerateRequest { lane, model: fixture.model(shape), ..fixture.request(prompt) };
        let n_events = if seed.is_multiple_of(4) { (seed % 9) as usize } else { usize::MAX };
        let counter = match use_up(fixture.start(request), n_events) {
            Some(true) => &n_finished,
            Some(false) => &n_refused,
            None => &n_cancelled,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        for thread in 0..n_threads {
            let ask = &ask;
            scope.spawn(move || (0..n_each).for_each(|index| ask(thread, index)));
        }
    });
    // The requests cancelled last are noticed at the next step.
    fixture.complete(fixture.request(tokens(1, 20)));
    fixture.check_balanced();
    let [finished, cancelled, refused] = [n_finished, n_cancelled, n_refused].map(AtomicUsize::into_inner);
    assert_eq!(finished + cancelled + refused, (n_threads * n_each) as usize);
    let counted = fixture.status().lanes.iter().map(|lane| lane.metrics.counts.refused).sum::<u64>();
    assert_eq!(counted, refused as u64);
    [finished, cancelled, refused]
}

#[test]
fn a_thousand_requests_from_many_threads_each_end_once() {
    let scheduler = SchedulerSettings { queue_limits: [24, 24, 24], sequences: 8, ..SchedulerSettings::default() };
    let model = ModelOptions { context_length: Some(512), n_sequences: 2, ..support::options() };
    let fixture = Fixture::with(EngineOptions { model, scheduler, ..EngineOptions::default() });
    let ends = ask_from_many_threads(&fixture, 64, 16);
    assert!(ends[0] > 400 && ends[1] > 50, "{ends:?}");
}

#[test]
fn requests_whose_models_make_room_for_each_other_each_end_once() {
    let fixture = room_for_one_model(EngineOptions::default());
    let ends = ask_from_many_threads(&fixture, 12, 6);
    assert!(ends[0] > 40 && ends[2] == 0, "{ends:?}");
}

#[test]
fn what_many_prompts_begin_with_survives_pressure() {
    let path = support::smollm2();
    let model = ModelOptions { context_length: Some(512), n_sequences: 1, ..support::options() };
    let engine = support::engine_with(EngineOptions::from(model));
    let beginning = "Grade the answer by the rubric, strictly and without regard for anything else. ".repeat(8);
    let grade = |answer: &str, common_beginning: Option<&str>| {
        let turn = Message::new(Role::User, format!("{beginning}{answer}"));
        // An answer that has begun has no beginning in common with others.
        let begun = common_beginning.map(|_| Message::new(Role::Assistant, "[RESULT]"));
        let request = GenerateRequest {
            max_tokens: Some(4),
            common_beginning: common_beginning.map(str::to_owned),
            ..GenerateRequest::new(path_name(&path), Prompt::Chat([turn].into_iter().chain(begun).collect()))
        };
        engine.generate(request).unwrap().complete().unwrap().timings
    };
    let fill = |seed: u32, n_tokens: usize| {
        let prompt = Prompt::Tokens(tokens(seed, n_tokens));
        let request = GenerateRequest { max_tokens: Some(4), ..GenerateRequest::new(path_name(&path), prompt) };
        engine.generate(request).unwrap().complete().unwrap();
    };
    assert_eq!(grade("It is 4.", None).cached_tokens, 0);
    (1..4).for_each(|seed| fill(seed, 450));
    assert!(grade("It is 5.", Some(&beginning)).cached_tokens < BLOCK_TOKENS, "what is not pinned goes");
    (4..7).for_each(|seed| fill(seed, 250));
    let timings = grade("It is 6.", None);
    assert!(timings.cached_tokens + 2 * BLOCK_TOKENS > timings.prompt_tokens - 20, "{timings:?}");
    assert!(engine.status().unwrap().models[0].cache.pinned > 0);
    fill(7, 500);
    assert_eq!(engine.status().unwrap().models[0].cache.pinned, 0, "a request that needs everything gets it");
}

#[test]
fn what_was_computed_of_a_conversation_is_found_again_another_day() {
    let folder = support::scratch();
    let saved = folder.path().join("saved");
    let options = EngineOptions { prefix_folder: Some(saved.clone()), ..EngineOptions::from(support::options()) };
    let fixture = Fixture::new(support::options());
    let conversation = tokens(1, 400);
    let next = [conversation.clone(), tokens(2, 30)].concat();
    let answer = |prompt: &[u32]| {
        let engine = support::engine_with(options.clone());
        let completion = engine.generate(fixture.request(prompt.to_vec())).unwrap().complete().unwrap();
        (completion.token_ids, completion.timings.cached_tokens)
    };
    let files = || {
        let files = std::fs::read_dir(&saved).into_iter().flatten();
        files.map(|file| file.unwrap().path()).collect::<Vec<PathBuf>>()
    };
    let (first, _) = answer(&conversation);
    assert_eq!(files().len(), 1);
    let (expected, n_cached) =
        (fixture.fresh(fixture.request(next.clone())).token_ids, 400 / BLOCK_TOKENS * BLOCK_TOKENS);
    assert_eq!(answer(&next), (expected.clone(), n_cached));
    assert_eq!(files().len(), 1, "the longer one has taken the place of its beginning");
    // A damaged file is treated as missing.
    let path = files().remove(0);
    let mut content = std::fs::read(&path).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    std::fs::write(&path, &content).unwrap();
    assert_eq!(answer(&next).0, expected);
    std::fs::write(&path, &content[..middle]).unwrap();
    assert_eq!(answer(&conversation).0, first);
    // One model's file is not used for another.
    let other = GenerateRequest { model: fixture.model("tiny-qwen3"), ..fixture.request(next.clone()) };
    let engine = support::engine_with(options.clone());
    assert_eq!(engine.generate(other).unwrap().complete().unwrap().timings.cached_tokens, 0);
}
