//! hone's own API.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::time::Instant;

use hone_app::config::ServerSettings;
use hone_memory::EventFilter;
use hone_protocol::scripted::{Script, Scripted};
use hone_protocol::{
    Constraint, Envelope, FinishReason, GenerateError, Payload, Prompt, QueryId, RespondentId, Reward, Role,
    SamplingOptions, SessionId, Subject,
};
use serde_json::{Value, json};

use crate::stage::{PATIENCE, Plan, Stage, ask, echo, name_of, settings, wait_for, wait_until};

/// The events of a response, up to its end or up to one with this text.
fn events(stage: &Stage, request: &str, until: &str) -> Vec<Value> {
    let mut reader = BufReader::new(stage.connect(request));
    let mut events = Vec::new();
    while let Some(event) = next_event(&mut reader) {
        let is_last = !until.is_empty() && event.to_string().contains(until);
        events.push(event);
        if is_last {
            break;
        }
    }
    events
}

fn next_event(reader: &mut BufReader<TcpStream>) -> Option<Value> {
    let (mut line, mut id) = (String::new(), None);
    loop {
        line.clear();
        if reader.read_line(&mut line).unwrap() == 0 {
            return None;
        }
        id = line.strip_prefix("id: ").map(|id| id.trim().to_owned()).or(id);
        if let Some(data) = line.strip_prefix("data: ") {
            let mut event: Value = serde_json::from_str(data).unwrap();
            if let Some(id) = id {
                event["event id"] = json!(id);
            }
            return Some(event);
        }
    }
}

fn get(stage: &Stage, path: &str, headers: &str) -> String {
    let host = stage.address;
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n")
}

pub(crate) fn chat(stage: &Stage, body: &Value) -> Vec<Value> {
    events(stage, &stage.post_text("/hone/v1/chat", body), "")
}

/// The report, once it is complete: the store is updated after the messages.
pub(crate) fn report_with(stage: &Stage, is_complete: impl Fn(&Value) -> bool) -> Value {
    wait_for("the report is complete", || Some(stage.get("/hone/v1/report").1).filter(&is_complete))
}

pub(crate) fn answered(events: &[Value]) -> &Value {
    events.iter().find(|event| event["type"] == "answered").unwrap_or_else(|| panic!("{events:?}"))
}

#[test]
fn a_question_of_the_page_is_streamed_rendered_and_saved() {
    let stage = Stage::start(settings(), echo);
    let told = chat(&stage, &json!({"question": "say **yes** <b>"}));
    let end = answered(&told);
    assert_eq!(end["exchange"]["html"], "<p>say <strong>yes</strong> &lt;b&gt;</p>\n", "{end}");
    let pieces: String =
        told.iter().filter(|event| event["type"] == "text").filter_map(|it| it["text"].as_str()).collect();
    assert_eq!(pieces, "say **yes** <b>");
    let name = end["conversation"].as_str().unwrap();
    assert_eq!(told[0]["conversation"], name);
    chat(&stage, &json!({"question": "and then", "conversation": name}));
    let requests = stage.model.requests();
    assert!(format!("{:?}", requests[1].prompt).contains("say **yes**"), "the second question has the first before it");
    let path = format!("/hone/v1/conversations/{name}");
    let exchanges = |stage: &Stage| stage.get(&path).1["exchanges"].as_array().unwrap().len();
    assert_eq!(exchanges(&stage), 2);
    chat(&stage, &json!({"question": "instead", "conversation": name, "keep": 1}));
    assert_eq!((exchanges(&stage), &stage.get(&path).1["exchanges"][1]["answer"]), (2, &json!("instead")));
}

#[test]
fn an_answer_that_was_cut_off_is_continued() {
    let stage = Stage::start(settings(), |request| {
        let Prompt::Chat(messages) = &request.prompt else { panic!("{request:?}") };
        match messages.last() {
            Some(last) if last.role == Role::Assistant => Script::saying(&[" in 1792", "."]),
            _ => Script { finish_reason: Some(FinishReason::Length), ..Script::saying(&["It was", " built"]) },
        }
    });
    let told = chat(&stage, &json!({"question": "When?"}));
    let name = answered(&told)["conversation"].clone();
    let go_on = json!({"question": "When?", "conversation": name, "keep": 0, "continues": true});
    let told = chat(&stage, &go_on);
    let pieces: Vec<&str> =
        told.iter().filter(|event| event["type"] == "text").filter_map(|it| it["text"].as_str()).collect();
    assert_eq!(pieces, ["It was built", " in 1792", "."]);
    let exchange = &answered(&told)["exchange"];
    assert_eq!((&exchange["answer"], &exchange["branch"]["count"]), (&json!("It was built in 1792."), &json!(2)));
    for (changed, reason) in [
        (json!({"keep": 0}), "the answer is complete: there is nothing to continue"),
        (json!({"keep": 1}), "continues needs a conversation, and keep as the index of this question in it"),
        (json!({"question": "Why?"}), "continues needs a conversation, and keep as the index of this question in it"),
    ] {
        let mut request = go_on.clone();
        request.as_object_mut().unwrap().extend(changed.as_object().unwrap().clone());
        let (status, error) = stage.post("/hone/v1/chat", &request);
        assert_eq!((status, &error["error"]["message"]), (400, &json!(reason)));
    }
}

/// In the meantime, another page has answered in another branch.
#[test]
fn a_later_answer_is_continued_in_its_own_branch() {
    let stage = Stage::start(settings(), |request| {
        let Prompt::Chat(messages) = &request.prompt else { panic!("{request:?}") };
        match messages.last() {
            Some(last) if last.role == Role::Assistant => Script::saying(&[", and more."]),
            Some(last) if last.content == "a long one" => {
                Script { finish_reason: Some(FinishReason::Length), ..Script::saying(&["this"]) }
            }
            _ => echo(request),
        }
    });
    let name = answered(&chat(&stage, &json!({"question": "first"})))["conversation"].clone();
    let cut = answered(&chat(&stage, &json!({"question": "a long one", "conversation": name})))["exchange"].clone();
    chat(&stage, &json!({"question": "another first", "conversation": name, "keep": 0}));
    let go_on = json!({
        "question": "a long one", "conversation": name, "keep": 1, "after": cut["query_id"], "continues": true
    });
    let told = chat(&stage, &go_on);
    assert_eq!(answered(&told)["exchange"]["answer"], "this, and more.");
    let (_, shown) = stage.get(&format!("/hone/v1/conversations/{}", name.as_str().unwrap()));
    let answers: Vec<&Value> = shown["exchanges"].as_array().unwrap().iter().map(|it| &it["answer"]).collect();
    assert_eq!(answers, ["first", "this, and more."]);
}

/// As a client of OpenAI's or Anthropic's API begins it.
#[test]
fn the_rest_of_an_answer_that_a_client_begins_keeps_its_space() {
    let stage = Stage::start(settings(), |_| Script::saying(&[" Par", "is."]));
    let messages = json!([{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "In"}]);
    let (_, answer) = stage.post("/v1/chat/completions", &json!({"model": "scripted", "messages": messages}));
    assert_eq!(answer["choices"][0]["message"]["content"], " Paris.");
    let (_, answer) = stage.post("/v1/messages", &json!({"model": "scripted", "max_tokens": 9, "messages": messages}));
    assert_eq!(answer["content"][0]["text"], " Paris.");
}

#[test]
fn the_oldest_exchanges_are_left_out_of_a_conversation_that_is_too_long() {
    let stage = Stage::start(settings(), |request| match format!("{:?}", request.prompt).contains("first") {
        true if format!("{:?}", request.prompt).contains("second") => {
            Script::failing(GenerateError::ContextOverflow { prompt_tokens: 9, context_tokens: 8 })
        }
        _ => echo(request),
    });
    chat(&stage, &json!({"question": "first"}));
    let told = chat(&stage, &json!({"question": "second", "conversation": name_of("first")}));
    assert_eq!(answered(&told)["left_out"], 1);
    let (_, saved) = stage.get(&path_of("first"));
    assert_eq!(saved["exchanges"].as_array().unwrap().len(), 2, "what is left out of the prompt stays");
}

#[test]
fn an_answer_is_stopped_and_what_there_is_of_it_is_kept() {
    let stage = Stage::start(settings(), echo);
    let mut reader = BufReader::new(stage.connect(&stage.post_text("/hone/v1/chat", &json!({"question": "endless"}))));
    while next_event(&mut reader).unwrap()["type"] != "text" {}
    let again = stage.post("/hone/v1/chat", &json!({"question": "x", "conversation": name_of("endless")}));
    assert_eq!((again.0, &again.1["error"]["type"]), (409, &json!("invalid_request_error")), "{}", again.1);
    assert_eq!(stage.post(&format!("{}/stop", path_of("endless")), &json!({})).1, json!({"stopped": true}));
    let mut last = json!(null);
    while let Some(event) = next_event(&mut reader) {
        last = event;
    }
    assert_eq!((&last["type"], &last["exchange"]["finish_reason"]), (&json!("answered"), &Value::Null), "{last}");
    assert_eq!(stage.post(&format!("{}/stop", path_of("endless")), &json!({})).1, json!({"stopped": false}));
}

#[test]
fn an_answer_goes_on_when_its_page_goes_away_and_is_followed_by_the_next_one() {
    let stage = Stage::start(settings(), echo);
    let path = path_of("endless");
    let mut reader = BufReader::new(stage.connect(&stage.post_text("/hone/v1/chat", &json!({"question": "endless"}))));
    while next_event(&mut reader).unwrap()["type"] != "text" {}
    drop(reader);
    assert_eq!(stage.get(&path).1["is_answering"], true);
    let mut reader = BufReader::new(
        stage.connect(&format!("GET {path}/answer HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")),
    );
    let begun = next_event(&mut reader).unwrap();
    assert_eq!((&begun["type"], &begun["question"], &begun["index"]), (&json!("begun"), &json!("endless"), &json!(0)));
    while next_event(&mut reader).unwrap()["type"] != "html" {}
    assert_eq!(stage.post(&format!("{path}/stop"), &json!({})).1, json!({"stopped": true}));
    let mut last = json!(null);
    while let Some(event) = next_event(&mut reader) {
        last = event;
    }
    assert_eq!(last["type"], "answered", "{last}");
    let saved = stage.get(&path).1;
    assert!(saved["exchanges"][0]["answer"].as_str().unwrap().starts_with("on "), "{saved}");
    assert_eq!(saved["is_answering"], false);
    // A page that lost the connection before the end gets the end, and no event that it already has.
    let rest = |after: &str| {
        let request = format!(
            "GET {path}/answer HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nLast-Event-ID: {after}\r\n\r\n"
        );
        let mut reader = BufReader::new(stage.connect(&request));
        std::iter::from_fn(|| next_event(&mut reader)).collect::<Vec<Value>>()
    };
    let all = rest("0");
    assert_eq!(all.last(), Some(&last));
    assert!(all.len() > 2 && rest("1").len() < all.len(), "{all:?}");
    assert_eq!(rest("1000000"), Vec::<Value>::new());
    assert_eq!(stage.get("/hone/v1/conversations/none/answer").0, 404);
}

#[test]
fn a_conversation_may_have_instructions_and_sampling_of_its_own() {
    let stage = Stage::start(settings(), |request| {
        let Prompt::Chat(messages) = &request.prompt else { panic!("{:?}", request.prompt) };
        let system =
            messages.iter().find(|message| message.role == Role::System).map(|message| message.content.clone());
        let SamplingOptions { temperature, .. } = request.sampling;
        Script::saying(&[&format!("{} {temperature} {:?}", system.unwrap_or_default(), request.max_tokens)])
    });
    let ask = |body: Value| answered(&chat(&stage, &body))["exchange"]["answer"].to_string();
    let first = ask(json!({"question": "x", "system": "Be brief.", "temperature": 0.25, "max_tokens": 7}));
    assert_eq!(first, "\"Be brief. 0.25 Some(7)\"");
    let second = ask(json!({"question": "y", "conversation": name_of("x")}));
    assert!(second.contains("Be brief.") && !second.contains("Some(7)"), "{second}");
    assert_eq!(stage.get(&path_of("x")).1["system"], "Be brief.");
    let third = ask(json!({"question": "z", "conversation": name_of("x"), "system": ""}));
    assert!(!third.contains("Be brief."), "{third}");
    for wrong in [json!({"temperature": 5000}), json!({"max_tokens": 0}), json!({"top_p": 2})] {
        let mut body = wrong.clone();
        body["question"] = json!("x");
        assert_eq!(stage.post("/hone/v1/chat", &body).0, 400, "{wrong}");
    }
}

#[test]
fn a_failed_question_leaves_no_conversation_behind() {
    let stage = Stage::start(settings(), |_| Script::failing(GenerateError::Stopped));
    let told = chat(&stage, &json!({"question": "x"}));
    assert_eq!(told.last().unwrap()["error"]["type"], "server_error", "{told:?}");
    assert_eq!(stage.get("/hone/v1/conversations").1, json!({"conversations": []}));
    assert_eq!(stage.post("/hone/v1/chat", &json!({"question": " "})).0, 400);
    assert_eq!(stage.post("/hone/v1/chat", &json!({"question": "x", "model": "/etc/passwd"})).0, 404);
    assert_eq!(stage.post("/hone/v1/chat", &json!({"question": "x", "conversation": "none"})).0, 404);
}

#[test]
fn conversations_are_listed_searched_renamed_exported_and_deleted() {
    let stage = Stage::start(settings(), echo);
    // In this order, the latest comes first even if both are written within one tick of the file system's clock.
    chat(&stage, &json!({"question": "stars"}));
    chat(&stage, &json!({"question": "tides"}));
    let names = |search: &str| {
        let (_, found) = stage.get(&format!("/hone/v1/conversations?search={search}"));
        found["conversations"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (names(""), names("TIDE"), names("moon")),
        (vec![name_of("tides"), name_of("stars")], vec![name_of("tides")], vec![])
    );
    let send = |method: &str, path: &str, body: &str| {
        let (host, length) = (stage.address, body.len());
        stage.send(&format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
    };
    assert_eq!(send("PATCH", &path_of("tides"), &json!({"name": name_of("stars")}).to_string()).0, 409);
    assert_eq!(send("PATCH", &path_of("tides"), "{\"name\": \"sea\"}").0, 200);
    let (_, markdown) = stage.get("/hone/v1/conversations/sea/export");
    assert_eq!(markdown, json!("# sea\n\n## You\n\ntides\n\n## scripted\n\ntides\n"));
    assert_eq!(stage.get("/hone/v1/conversations/sea/export?format=json").1["exchanges"][0]["answer"], "tides");
    assert_eq!(send("DELETE", "/hone/v1/conversations/sea", "").0, 200);
    assert_eq!(send("DELETE", "/hone/v1/conversations/sea", "").0, 404);
    assert_eq!(names(""), [name_of("stars")]);
}

#[test]
fn what_came_of_a_removed_conversation_is_forgotten_if_that_is_wanted() {
    let stage = Stage::planned(settings(), Plan::grading(4), echo);
    chat(&stage, &json!({"question": "stars"}));
    chat(&stage, &json!({"question": "tides"}));
    let remembered = || {
        let (_, list) = stage.get("/hone/v1/memory");
        let engrams = list["engrams"].as_array().unwrap();
        engrams.iter().map(|it| it["query"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    wait_until("both are remembered", || remembered().len() == 2);
    let removed = stage.delete(&format!("{}?forget=true", path_of("stars")));
    assert_eq!(removed, (200, json!({"removed": true, "forgotten": 1})));
    assert_eq!(remembered(), ["tides"], "what was not to be forgotten stays");
    assert_eq!(stage.delete(&path_of("tides")), (200, json!({"removed": true, "forgotten": 0})));
    assert_eq!(remembered(), ["tides"]);
}

#[test]
fn a_grade_is_waited_for() {
    let stage = Stage::planned(settings(), Plan::grading(4), echo);
    let told = chat(&stage, &json!({"question": "how are you"}));
    let id = answered(&told)["exchange"]["query_id"].as_str().unwrap().to_owned();
    let (status, grade) = stage.get(&format!("/hone/v1/critique/{id}?wait=60"));
    assert_eq!((status, &grade["score"], &grade["status"]), (200, &json!(4), &json!("graded")), "{grade}");
    assert_eq!((&grade["badge"]["color"], &grade["feedback"]), (&json!("#22c55e"), &json!("It is fine.")), "{grade}");
    let (status, rated) = stage.post("/hone/v1/feedback", &json!({"query_id": id, "rating": "bad"}));
    assert_eq!((status, &rated["rating"]), (200, &json!("bad")));
    // The rating is published before it is stored.
    let shown = || stage.get(&path_of("how are you")).1["exchanges"][0].clone();
    wait_until("the rating arrives", || shown()["rating"] == "bad");
    let report = report_with(&stage, |report| {
        report["judges"][0]["scores"] == json!([0, 0, 0, 1, 0]) && report["trend"]["points"][0]["score"] == 4
    });
    assert!(report["judges"][0]["svg"].as_str().unwrap().starts_with("<svg"), "{report}");
    assert_eq!(shown()["grade"]["score"], 4);
    assert_eq!(stage.get(&format!("/hone/v1/critique/{id}")).1["rating"], "bad");
    assert_eq!(
        stage.post("/hone/v1/feedback", &json!({"query_id": id})).0,
        400,
        "a rating is not taken back by mistake"
    );
    assert_eq!(stage.post("/hone/v1/feedback", &json!({"query_id": id, "rating": null})).0, 200);
    wait_until("the rating is taken back", || shown()["rating"].is_null());
}

#[test]
fn reasons_are_written_when_a_client_asks_for_them_and_remembered() {
    let judge = Scripted::new(|request| match request.constraint {
        Some(Constraint::Regex(_)) => Script::saying(&[" 4"]),
        _ => Script::saying(&["It is fine.", " [RESULT] 2"]),
    });
    let stage = Stage::planned(settings(), Plan { judge: Some(judge), is_silent: true, remembers: true }, echo);
    let told = chat(&stage, &json!({"question": "how are you"}));
    let id = answered(&told)["exchange"]["query_id"].as_str().unwrap().to_owned();
    let path = format!("/hone/v1/critique/{id}");
    let (_, grade) = stage.get(&format!("{path}?wait=60"));
    assert_eq!((&grade["score"], &grade["feedback"]), (&json!(4), &json!("")), "{grade}");
    let (status, explained) = stage.post(&format!("{path}/reasons"), &Value::Null);
    let feedback = "It is fine.\n[With its reasons written out, the judge comes to 2/5.]";
    assert_eq!(
        (status, &explained["score"], &explained["feedback"]),
        (200, &json!(4), &json!(feedback)),
        "{explained}"
    );
    let store = stage.store.as_ref().unwrap();
    let remembered = || store.get(id.parse().unwrap()).unwrap().and_then(|engram| engram.grade);
    wait_until("it is remembered", || remembered().is_some_and(|grade| grade.feedback == feedback));
    let asked = || stage.judge.as_ref().unwrap().requests().len();
    let before = asked();
    assert_eq!(stage.post(&format!("{path}/reasons"), &Value::Null).1["feedback"], feedback);
    assert_eq!(asked(), before, "reasons are written once");
    let unknown = "/hone/v1/critique/019f0000-0000-7000-8000-000000000000/reasons";
    assert_eq!(stage.post(unknown, &Value::Null).0, 404);
}

/// A client that has its answer need not stay for the grade.
#[test]
fn answers_of_all_apis_are_graded() {
    let stage = Stage::planned(settings(), Plan::grading(5), echo);
    let (_, answer) = stage.post("/v1/chat/completions", &ask("one"));
    let id = answer["hone"]["query_id"].as_str().unwrap();
    let (status, grade) = stage.get(&format!("/hone/v1/critique/{id}?wait=60"));
    assert_eq!((status, &grade["score"]), (200, &json!(5)), "{grade}");
}

#[test]
fn a_grade_that_does_not_come_is_not_waited_for_longer_than_was_asked() {
    let slow = || Scripted::always(Script::never_ending(&["It"]));
    let stage = Stage::planned(settings(), Plan { judge: Some(slow()), remembers: true, ..Plan::default() }, echo);
    let told = chat(&stage, &json!({"question": "x"}));
    let id = answered(&told)["exchange"]["query_id"].as_str().unwrap().to_owned();
    let begin = Instant::now();
    let (status, grade) = stage.get(&format!("/hone/v1/critique/{id}?wait=0.2"));
    assert_eq!((status, &grade["status"], &grade["score"]), (202, &json!("pending"), &Value::Null), "{grade}");
    assert!(begin.elapsed() < PATIENCE / 2);
    for unknown in ["019f0000-0000-7000-8000-000000000000?wait=60", "none", "..%2F..%2Fetc"] {
        let (status, refused) = stage.get(&format!("/hone/v1/critique/{unknown}"));
        assert!(status == 404 || status == 400, "{status} {refused}");
    }
    let ungraded = Stage::start(settings(), echo);
    let told = chat(&ungraded, &json!({"question": "x"}));
    let id = answered(&told)["exchange"]["query_id"].as_str().unwrap().to_owned();
    let (status, grade) = ungraded.get(&format!("/hone/v1/critique/{id}?wait=60"));
    assert_eq!((status, &grade["status"]), (200, &json!("ungraded")), "nobody grades here: {grade}");
}

#[test]
fn events_resume_where_a_client_was_cut_off() {
    let stage = Stage::planned(settings(), Plan::grading(2), echo);
    chat(&stage, &json!({"question": "one"}));
    let past = events(
        &stage,
        &get(&stage, "/hone/v1/events?last=100&subjects=query.received,response.generation", ""),
        "generation",
    );
    assert_eq!(
        (past.len(), &past[0]["subject"], &past[1]["subject"]),
        (2, &json!("query.received"), &json!("response.generation"))
    );
    stage.post("/v1/chat/completions", &ask("two"));
    let seen = past[1]["event id"].as_str().unwrap();
    let rest = events(
        &stage,
        &get(&stage, "/hone/v1/events?subjects=response.generation", &format!("Last-Event-ID: {seen}\r\n")),
        "two",
    );
    assert_eq!((rest.len(), &rest[0]["payload"]["answer"]), (1, &json!("two")), "{rest:?}");
    assert_eq!(stage.get("/hone/v1/events?subjects=x").0, 400);
    assert_eq!(stage.send(&get(&stage, "/hone/v1/events", "Last-Event-ID: x\r\n")).0, 400);
}

/// The latest messages are kept by the server, earlier ones by memory.
#[test]
fn events_resume_from_the_log_of_a_server_that_ran_before() {
    let stage = Stage::planned(settings(), Plan::grading(3), echo);
    let store = stage.store.clone().unwrap();
    let (session, id) = (SessionId::fresh(), QueryId::fresh());
    let said = |reward: f64| {
        let reward = Reward { reward, model: String::new() };
        let payload = Payload::RewardEvent(reward);
        let envelope = Envelope::new("earlier", session, payload);
        let envelope = envelope.about(id, id, RespondentId::A);
        store.append_event(&envelope).unwrap();
        envelope
    };
    let (first, _) = (said(0.25), said(0.5));
    let header = format!("Last-Event-ID: {}\r\n", first.id);
    let rest = events(&stage, &get(&stage, "/hone/v1/events", &header), "0.5");
    assert_eq!((rest.len(), &rest[0]["payload"]["reward"]), (1, &json!(0.5)), "{rest:?}");
}

/// However long a refused question is, little of it is kept: in memory for clients, and in the log for good.
#[test]
fn a_long_question_that_is_refused_leaves_a_short_record() {
    const QUESTIONS: usize = 6;
    let overflow = GenerateError::ContextOverflow { prompt_tokens: 200_000, context_tokens: 8192 };
    let plan = Plan { remembers: true, ..Plan::default() };
    let stage = Stage::planned(settings(), plan, move |_| Script::failing(overflow.clone()));
    let long = "word ".repeat(200_000);
    for _ in 0..QUESTIONS {
        let (status, answer) = stage.post("/v1/chat/completions", &ask(&long));
        assert_eq!(status, 400, "{answer}");
    }
    let said = |events: Vec<Value>| {
        assert_eq!(events.len(), QUESTIONS);
        for event in events {
            let question = event["payload"]["query"].as_str().unwrap();
            assert!(question.len() < 40_000, "{} bytes of the question are kept", question.len());
            assert!(question.ends_with("[…: 32768 of 1000000 bytes]"), "{question:?}");
        }
    };
    let request = get(&stage, &format!("/hone/v1/events?last={QUESTIONS}&subjects=query.received"), "");
    let mut reader = BufReader::new(stage.connect(&request));
    said((0..QUESTIONS).map(|_| next_event(&mut reader).unwrap()).collect());
    let store = stage.store.clone().unwrap();
    let asked = EventFilter { subjects: vec![Subject::QueryReceived], ..EventFilter::default() };
    let logged = || store.events(&asked, None).unwrap();
    let logged = wait_for("every question is in the log", || Some(logged()).filter(|it| it.len() == QUESTIONS));
    said(logged.into_iter().map(|(_, event)| serde_json::to_value(event).unwrap()).collect());
}

#[test]
fn what_is_remembered_is_searched_shown_and_forgotten() {
    let stage = Stage::planned(settings(), Plan::grading(5), echo);
    let told = chat(&stage, &json!({"question": "tides and moons"}));
    let id = answered(&told)["exchange"]["query_id"].as_str().unwrap().to_owned();
    stage.get(&format!("/hone/v1/critique/{id}?wait=60"));
    let found = |search: &str| stage.get(&format!("/hone/v1/memory?limit=5&search={search}")).1["engrams"].clone();
    // The grade, too, is published before it is stored.
    wait_until("the grade is remembered", || found("")[0]["grade"]["badge"]["text"] == "● 5/5");
    assert_eq!((found("moons")[0]["query_id"].as_str(), found("suns")), (Some(id.as_str()), json!([])));
    assert_eq!(stage.get(&format!("/hone/v1/memory/{id}")).1["answer"], "tides and moons");
    let host = stage.address;
    let forget = |id: &str| {
        stage.send(&format!("DELETE /hone/v1/memory/{id} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
    };
    for none in ["x", "019f", "019f0000-0000-7000-8000-000000000000", "%2e%2e", "zzzzzzzz", &"0".repeat(400)] {
        assert_eq!(stage.get(&format!("/hone/v1/memory/{none}")).0, 404, "{none}");
        assert_eq!(forget(none).0, 404, "{none}");
    }
    assert_eq!(forget(&id), (200, "{\"removed\":true}".to_owned()));
    assert_eq!(found("moons"), json!([]));
    let without = Stage::start(settings(), echo);
    assert_eq!(without.get("/hone/v1/memory").1["error"]["type"], "not_found_error");
}

#[test]
fn errors_have_the_form_of_the_api_and_foreign_pages_are_refused() {
    let stage = Stage::start(ServerSettings { most_body: Some(100), ..settings() }, echo);
    let (status, refused) = stage.get("/hone/v1/nothing");
    let message = "GET /hone/v1/nothing: there is nothing at this path";
    assert_eq!((status, refused), (404, json!({"error": {"message": message, "type": "not_found_error"}})));
    assert_eq!(stage.post("/hone/v1/render", &json!({"markdown": "x".repeat(200)})).0, 413);
    for path in ["/", "/page/app.js", "/hone/v1/memory", "/hone/v1/events"] {
        for header in ["Origin: https://evil.example\r\n", "Sec-Fetch-Site: cross-site\r\n"] {
            assert_eq!(stage.send(&get(&stage, path, header)).0, 403, "{path} {header}");
        }
        let foreign = format!("GET {path} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
        assert_eq!(stage.send(&foreign).0, 403, "{path}");
    }
}

/// A slow reader is cut off; the other listeners hear everything.
#[test]
fn a_slow_reader_of_events_holds_nobody_up() {
    let stage = Stage::start(settings(), echo);
    let slow = stage.connect(&get(&stage, "/hone/v1/events", ""));
    let mut reader = BufReader::new(slow.try_clone().unwrap());
    let mut line = String::new();
    while line.trim_end() != ":" {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0);
    }
    let long = "word ".repeat(10_000);
    let session = SessionId::fresh();
    for _ in 0..1600 {
        let reward = Payload::RewardEvent(Reward { reward: 1.0, model: long.clone() });
        stage.bus.publish(Envelope::new("test", session, reward)).unwrap();
    }
    assert_eq!(stage.post("/v1/chat/completions", &ask("still here")).0, 200);
    let mut n_read = 0;
    while let Some(_event) = next_event(&mut reader) {
        n_read += 1;
    }
    assert!(n_read < 1600, "the reader was cut off after {n_read} events");
}

/// The path of a conversation that began with this question.
fn path_of(question: &str) -> String {
    format!("/hone/v1/conversations/{}", name_of(question))
}
