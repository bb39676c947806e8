//! `hone mcp` as programs start it, and `hone chat --mcp` with it and with worse servers: the real binary with the
//! built-in model.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

#[cfg(unix)]
use crate::support::terminal::Terminal;
use crate::support::{Home, smollm2};
use hone_engine::gguf::{Gguf, TensorInfo, WriteValue, Writer};
use serde_json::{Value, json};

const HONE: &str = env!("CARGO_BIN_EXE_hone");

/// A home in which the built-in model stands in for the judge, and judges briefly.
fn home() -> Home {
    Home::graded_by_the_generator()
        .variable("HONE_ENGINE_MODEL", &smollm2())
        .variable("HONE_JUDGE_FEEDBACK_TOKENS", "24")
        .variable("HONE_JUDGE_GRADE_TIMEOUT", "600")
}

/// A program that has started `hone mcp`.
struct Session {
    process: Child,
    lines: BufReader<ChildStdout>,
    n_sent: usize,
}

impl Session {
    /// Starts it and shakes hands.
    fn begin(home: &Home, arguments: &[&str]) -> Session {
        let mut command = home.command(HONE.as_ref(), &[&["mcp"], arguments].concat());
        let mut process = command.stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        let mut session = Session { process, lines, n_sent: 0 };
        let client = json!({"name": "test", "version": "1"});
        let begin = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        let begun = session.ask("initialize", &begin);
        assert_eq!(begun["result"]["serverInfo"]["name"], "hone", "{begun}");
        session.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        session
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    /// Sends a request and returns its response, which is the next line.
    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.n_sent += 1;
        let id = self.n_sent;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        let response: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"));
        assert_eq!((&response["jsonrpc"], &response["id"]), (&json!("2.0"), &json!(id)), "{response}");
        response
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.ask("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    /// Ends it as programs do, and returns its exit code and the rest of its stdout.
    fn end(mut self) -> (Option<i32>, String) {
        drop(self.process.stdin.take());
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.lines, &mut rest).unwrap();
        (self.process.wait().unwrap().code(), rest)
    }
}

#[test]
fn a_program_uses_the_tools_over_stdin_and_stdout() {
    let home = home();
    let mut session = Session::begin(&home, &["-v"]);
    let listed = session.ask("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, ["grade", "compare", "decide", "search_memory", "report"]);
    let found = session.call("search_memory", &json!({"search": "tides"}));
    assert_eq!(found["result"]["structuredContent"], json!({"engrams": []}), "{found}");
    let report = session.call("report", &json!({}));
    assert_eq!(report["result"]["structuredContent"]["statistics"]["all"]["engrams"], 0, "{report}");
    let wrong = session.call("grade", &json!({"query": "Why?"}));
    let told = wrong["result"]["content"][0]["text"].as_str().unwrap();
    assert!(wrong["result"]["isError"] == true && told.contains("missing field `answer`"), "{wrong}");
    let unknown = session.call("format_disk", &json!({}));
    assert_eq!((&unknown["error"]["code"], unknown.get("result")), (&json!(-32602), None), "{unknown}");
    let asked = json!({"query": "What is the capital of France?", "answer": "Paris."});
    let grade = session.call("grade", &asked)["result"]["structuredContent"].take();
    assert!((1..=5).contains(&grade["score"].as_u64().unwrap()), "{grade}");
    assert_eq!((&grade["judge"], &grade["rubric"]), (&json!(smollm2()), &json!("default")), "{grade}");
    let questions = json!({"angry": {"type": "noul", "instructions": "Is the customer angry?"}});
    let decided = session.call("decide", &json!({"state": "Where is my order?!", "questions": questions}));
    let decided = &decided["result"]["structuredContent"];
    assert!((0.0..=1.0).contains(&decided["answers"]["angry"]["noul"].as_f64().unwrap()), "{decided}");
    assert_eq!((&decided["model"], &decided["hone"]["examined"]), (&json!(smollm2()), &json!(false)), "{decided}");
    let wrong = session.call("decide", &json!({"state": "x", "questions": {}}));
    let told = wrong["result"]["content"][0]["text"].as_str().unwrap();
    assert!(wrong["result"]["isError"] == true && told.contains("there are 0 questions"), "{wrong}");
    assert_eq!(session.end(), (Some(0), String::new()), "only the protocol stands on stdout");
}

#[test]
fn a_program_that_does_not_speak_the_protocol_is_told_so() {
    let run = home().run_with_stdin(&["mcp"], b"");
    assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{}", run.stderr);
    assert!(run.stderr.contains("error: the client does not speak the Model Context Protocol: "), "{}", run.stderr);
}

/// Writes the built-in model with a template that makes it call the tool in the question and report the outcome.
fn calling_model(home: &Home) -> PathBuf {
    let turn = |role: &str, text: &str| format!("<|im_start|>{role}\n{text}<|im_end|>\n");
    let examples = |asked: &str, said: &str| (turn("user", asked) + &turn("assistant", said)).repeat(4);
    let template = format!(
        "{{% if tools %}}{{% endif %}}{{% set last = messages[-1] %}}{{% if last.role == 'tool' %}}\
         {{% if 'statistics' in last.content %}}{}{{% else %}}{}{{% endif %}}{{% else %}}{}{{% endif %}}\
         <|im_start|>user\nNow.<|im_end|>\n<|im_start|>assistant\n",
        examples("Now.", "It worked."),
        examples("Now.", "It went wrong."),
        examples("Now.", "<tool_call>{{ last.content }}</tool_call>"),
    );
    let source = Gguf::open(Path::new(&smollm2())).unwrap();
    let mut writer = Writer::new();
    for prefix in ["general.architecture", "llama.", "tokenizer.ggml."] {
        writer.copy_metadata(&source, prefix).unwrap();
    }
    writer.metadata("tokenizer.chat_template", WriteValue::String(&template)).unwrap();
    let tensors: Vec<&TensorInfo> = source.tensors().collect();
    for tensor in &tensors {
        writer.tensor(&tensor.name, &tensor.dimensions, tensor.tensor_type).unwrap();
    }
    let mut written = writer.begin(Vec::new()).unwrap();
    for tensor in tensors {
        written.write(&tensor.name, source.tensor_bytes(tensor)).unwrap();
    }
    home.write("calling.gguf", &written.finish().unwrap())
}

/// The text of the answer after a call of a tool, and the notes on stderr.
fn chat(home: &Home, model: &Path, servers: &Value, tool: &str, flags: &[&str]) -> (String, String) {
    let file = home.write("mcp.json", json!({"mcpServers": servers}).to_string().as_bytes());
    let call = json!({"name": tool, "arguments": {}}).to_string();
    let paths = ["--model", model.to_str().unwrap(), "--mcp", file.to_str().unwrap()];
    let run = home.run(&[&["chat", &call, "--temperature", "0", "--no-grade"], &paths[..], flags].concat());
    assert_eq!(run.code, 0, "{}", run.stderr);
    (run.stdout.trim().to_owned(), run.stderr)
}

/// hone itself as a server, which leaves its process id in a file.
fn hone_as_server(home: &Home) -> Value {
    let script = format!("echo $$ >'{}'; exec '{HONE}' mcp", home.path("pid").display());
    json!({"command": "sh", "args": ["-c", script], "env": {"HONE_LOG": "warn"}})
}

#[cfg(unix)]
#[test]
fn a_model_calls_the_tools_of_servers_that_end_with_the_chat() {
    let home = home();
    let model = calling_model(&home);
    let servers = json!({"hone": hone_as_server(&home)});
    let (answer, noted) = chat(&home, &model, &servers, "hone_report", &["--allow-tools"]);
    assert!(noted.contains("the model may call 5 tools\n"), "{noted}");
    assert!(noted.contains("the model calls hone_report {}\n"), "{noted}");
    assert_eq!(noted.matches("WARN").count(), 1, "only that there is no configuration is logged: {noted}");
    assert_eq!(answer, "It worked.", "{noted}");
    let process = fs::read_to_string(home.path("pid")).unwrap();
    let is_alive = Command::new("kill").args(["-0", process.trim()]).output().unwrap().status.success();
    assert!(!is_alive, "the server {process} outlives the chat");
}

#[test]
fn a_model_calls_the_tools_of_a_server_at_an_address() {
    let home = home();
    let model = calling_model(&home);
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--no-grade"];
    let mut server = home.command(HONE.as_ref(), &arguments).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("hone serves on ").unwrap_or_else(|| panic!("{line:?}"));
    let servers = json!({"hone": {"url": format!("{address}/mcp")}, "none": {"url": format!("{address}/nowhere")}});
    let (answer, noted) = chat(&home, &model, &servers, "hone_report", &["--allow-tools", "--own-engine"]);
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(noted.contains("the MCP server \"none\" is left out: ") && noted.contains("status 404"), "{noted}");
    assert_eq!(answer, "It worked.", "{noted}");
}

#[cfg(unix)]
#[test]
fn without_a_terminal_nothing_is_called_that_is_not_allowed() {
    let home = home();
    let model = calling_model(&home);
    let servers = json!({"hone": hone_as_server(&home)});
    let (answer, noted) = chat(&home, &model, &servers, "hone_report", &[]);
    assert!(noted.contains("not called: nobody can be asked without a terminal"), "{noted}");
    assert_eq!(answer, "It went wrong.", "{noted}");
}

/// A server with one tool, which acts this way when it is called.
fn server_that(acts: &str) -> Value {
    let script = format!(
        r#"answer() {{ read -r line; id=$(printf %s "$line" | sed 's/.*"id":\([0-9]*\).*/\1/'); printf '{{"jsonrpc":"2.0","id":%s,"result":%s}}\n' "$id" "$1"; }}
        answer '{{"protocolVersion":"2025-06-18","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"x","version":"1"}}}}'
        read -r initialized
        answer '{{"tools":[{{"name":"act","inputSchema":{{"type":"object"}}}}]}}'
        {acts}"#
    );
    json!({"command": "sh", "args": ["-c", script]})
}

#[cfg(unix)]
#[test]
fn what_a_server_does_wrong_is_said_and_does_not_end_the_chat() {
    let home = home();
    let model = calling_model(&home);
    let refuses = r#"answer '{"content":[{"type":"text","text":"no such table"}],"isError":true}'; read -r end"#;
    for (acts, expected) in [
        ("read -r call; exit 1", "the call failed: the server has ended\n"),
        ("read -r call; echo garbage; exit 1", "the call failed: the server has ended\n"),
        (refuses, "the call failed: no such table\n"),
    ] {
        let (answer, noted) = chat(&home, &model, &json!({"odd": server_that(acts)}), "odd_act", &["--allow-tools"]);
        assert!(noted.contains(expected), "{acts}: {noted}");
        assert_eq!(answer, "It went wrong.", "{acts}: {noted}");
    }
    let good = server_that(r#"answer '{"content":[{"type":"text","text":"statistics"}]}'; read -r end"#);
    let servers = json!({
        "good": good,
        "missing": {"command": "/nowhere/server"},
        "silent": {"command": "sh", "args": ["-c", "echo garbage; exit 1"]},
        "ended": {"command": "true"},
    });
    let (answer, noted) = chat(&home, &model, &servers, "good_act", &["--allow-tools"]);
    assert!(noted.contains("the MCP server \"missing\" is left out: cannot start \"/nowhere/server\": "), "{noted}");
    assert!(noted.contains("the MCP server \"silent\" is left out: "), "{noted}");
    let ended = ["it ended before it answered", "it cannot be asked: Broken pipe"];
    let is_said = |why: &&str| noted.contains(&format!("the MCP server \"ended\" is left out: {why}"));
    assert!(ended.iter().any(is_said), "{noted}");
    assert_eq!(answer, "It worked.", "{noted}");
}

#[test]
fn a_file_that_names_no_servers_is_refused() {
    let home = home();
    let file = home.write("mcp.json", b"{}");
    let run = home.run(&["chat", "Why?", "--mcp", file.to_str().unwrap()]);
    assert!(run.code == 2 && run.stderr.contains("~/mcp.json does not name MCP servers as "), "{}", run.stderr);
}

#[cfg(unix)]
#[test]
fn a_person_is_asked_about_every_call() {
    let home = home();
    let model = calling_model(&home);
    let servers = json!({"mcpServers": {"hone": hone_as_server(&home)}});
    let file = home.write("mcp.json", servers.to_string().as_bytes());
    let paths = ["--model", model.to_str().unwrap(), "--mcp", file.to_str().unwrap()];
    let terminal = Terminal::chat_with(&home, &[&paths[..], &["--temperature", "0", "--no-grade"]].concat());
    let is_prompt =
        |lines: &[String]| lines.iter().rev().find(|line| !line.is_empty()).is_some_and(|it| it.trim() == ">");
    let count = |lines: &[String], text: &str| lines.iter().filter(|line| line.contains(text)).count();
    terminal.wait_for("prompt", is_prompt);
    for (n, (key, told, said)) in [
        ("y", "[y/N] yes", "It worked."),
        ("n", "not called: you did not allow it", "It went wrong."),
        ("\u{3}", "the question was withdrawn", "withdrawn"),
    ]
    .into_iter()
    .enumerate()
    {
        terminal.type_text("{\"name\": \"hone_report\", \"arguments\": {}}\r");
        terminal.wait_for("question about the call", |lines| count(lines, "allow it? [y/N]") == n + 1);
        terminal.type_text(key);
        terminal.wait_for(said, |lines| count(lines, told) > 0 && count(lines, said) > 0 && is_prompt(lines));
    }
}
