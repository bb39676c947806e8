//! The web page, and the parts of an answer that it shows.

use hone_app::config::{KeyHash, ServerSettings};
use serde_json::{Value, json};

use crate::stage::{Stage, echo, settings};

/// The head of a response.
fn head(stage: &Stage, path: &str, headers: &str) -> String {
    use std::io::Read;
    let host = stage.address;
    let mut stream =
        stage.connect(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n"));
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().0.to_ascii_lowercase()
}

#[test]
fn the_page_may_load_and_run_nothing_from_elsewhere() {
    let stage = Stage::start(settings(), echo);
    let policy = "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; \
                  img-src 'self' data:; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    for (path, kind) in [
        ("/", "text/html"),
        ("/page/style.css", "text/css"),
        ("/page/app.js", "text/javascript"),
        ("/page/chat.js", "text/javascript"),
        ("/page/icon.svg", "image/svg+xml"),
        ("/page/hone.webmanifest", "application/manifest+json"),
    ] {
        let head = head(&stage, path, "");
        for expected in [
            "http/1.1 200",
            policy,
            &format!("content-type: {kind}"),
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "etag: \"",
        ] {
            assert!(head.contains(expected), "{path} lacks {expected}:\n{head}");
        }
        let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
        let again = self::head(&stage, path, &format!("If-None-Match: {tag}\r\n"));
        assert!(again.starts_with("http/1.1 304"), "{again}");
    }
    let (_, page) = stage.get("/");
    let page = page.as_str().unwrap();
    assert!(!page.contains("<script>") && !page.contains("style=") && !page.contains("http:"), "{page}");
}

/// The files of the page hold no data; everything else needs the key.
#[test]
fn only_the_files_of_the_page_need_no_key() {
    let stage = Stage::start(ServerSettings { keys: vec![KeyHash::of("sesame")], ..settings() }, echo);
    for path in ["/", "/page/app.js", "/page/style.css", "/page/icon.svg", "/page/hone.webmanifest"] {
        assert_eq!(stage.get(path).0, 200, "{path}");
    }
    for path in [
        "/page/none.js",
        "/page/",
        "/page",
        "/page/app.js/",
        "/page/../hone/v1/memory",
        "/page/%61pp.js",
        "//",
        "/hone/v1/models",
        "/hone/v1/events",
        "/hone/v1/memory",
        "/hone/v1/conversations",
        "/v1/models",
    ] {
        assert_eq!(stage.get(path).0, 401, "{path}");
    }
    assert_eq!(stage.post("/hone/v1/render", &json!({"markdown": "x"})).0, 401);
}

/// Presets are files of the server's owner.
#[test]
fn clients_with_keys_neither_see_nor_change_presets() {
    let locked = Stage::start(ServerSettings { keys: vec![KeyHash::of("sesame")], ..settings() }, echo);
    let nothing = json!({"presets": [], "can_save": false});
    assert_eq!(locked.with_key("sesame", "GET", "/hone/v1/presets", &json!({})), (200, nothing));
    let preset = json!({"name": "mine", "temperature": 0.5});
    assert_eq!(locked.with_key("sesame", "POST", "/hone/v1/presets", &preset).0, 403);
    assert_eq!(locked.with_key("sesame", "DELETE", "/hone/v1/presets/mine", &json!({})).0, 403);
}

#[test]
fn presets_are_saved_under_new_names() {
    let stage = Stage::start(settings(), echo);
    let calm = json!({"name": "calm", "system": "Be brief.", "temperature": 0.5, "max_tokens": 9, "thinking": false});
    assert_eq!(stage.post("/hone/v1/presets", &calm), (200, json!({"name": "calm"})));
    let (status, refused) = stage.post("/hone/v1/presets", &json!({"name": "calm", "top_p": 0.5}));
    let reason = "a preset \"calm\" exists already: choose another name";
    assert_eq!((status, refused["error"]["message"].as_str()), (409, Some(reason)));
    let settings = json!({
        "chat.system": "Be brief.",
        "sampling.temperature": 0.5,
        "sampling.max_tokens": 9,
        "sampling.thinking": "off",
    });
    let saved = json!({"presets": [{"name": "calm", "settings": settings}], "can_save": true});
    assert_eq!(stage.get("/hone/v1/presets"), (200, saved));
}

#[test]
fn presets_are_replaced_if_that_is_wanted_and_deleted() {
    let stage = Stage::start(settings(), echo);
    let save = |preset: Value| stage.post("/hone/v1/presets", &preset);
    assert_eq!(save(json!({"name": "calm", "system": "Be brief.", "temperature": 0.5})).0, 200);
    assert_eq!(save(json!({"name": "calm", "temperature": 0.7, "replace": true})), (200, json!({"name": "calm"})));
    let settings = json!({"sampling.temperature": 0.7});
    assert_eq!(stage.get("/hone/v1/presets").1["presets"], json!([{"name": "calm", "settings": settings}]));
    assert_eq!(save(json!({"name": "calm", "temperature": -1.0, "replace": true})).0, 400);
    assert_eq!(save(json!({"name": "new", "top_p": 0.5, "replace": true})).0, 200, "there is nothing to replace");
    assert_eq!(stage.delete("/hone/v1/presets/calm"), (200, json!({"removed": true})));
    assert_eq!(stage.delete("/hone/v1/presets/calm").0, 404);
    assert_eq!(stage.delete("/hone/v1/presets/..%2Fserver").0, 404);
    assert_eq!(stage.get("/hone/v1/presets").1["presets"][0]["name"], "new");
}

#[test]
fn presets_that_are_not_valid_are_refused() {
    let stage = Stage::start(settings(), echo);
    let refused = |preset: Value, reason: &str| {
        let (status, answer) = stage.post("/hone/v1/presets", &preset);
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 400 && message.contains(reason), "{answer}");
    };
    refused(json!({"name": "../calm", "top_p": 0.5}), "is not a valid name for a preset");
    refused(json!({"name": "wild", "top_p": 7.0}), "sampling.top_p (preset wild)");
    refused(json!({"name": "empty"}), "a preset needs a setting");
    refused(json!({"name": "odd", "top_k": 5}), "top_k");
    assert_eq!(stage.get("/hone/v1/presets").1["presets"], json!([]));
}

/// A page sends files as arbitrary bytes, which it may do to this path only.
#[test]
fn a_file_is_read_for_the_page() {
    let stage = Stage::start(settings(), echo);
    let as_file = format!("Content-Type: application/octet-stream\r\nOrigin: http://{}\r\n", stage.address);
    let send = |path: &str, replaced: &str| {
        let request = stage.post_text(path, &json!("Ebb?"));
        let request = request.replace("Content-Type: application/json\r\n", &as_file).replace('?', replaced);
        stage.send(&request)
    };
    assert_eq!(send("/hone/v1/text", "!"), (200, json!({"text": "\"Ebb!\""}).to_string()));
    let (status, refused) = send("/hone/v1/text", "\0");
    assert!(status == 400 && refused.contains("the file is a binary file"), "{status} {refused}");
    assert_eq!(send("/hone/v1/render", "!").0, 415);
}

/// Attacks by an answer; none of them may become more than text or a harmless link.
const PAYLOADS: [&str; 52] = [
    "<script>alert(1)</script>",
    "<SCRIPT SRC=//evil.example/x.js></SCRIPT>",
    "<img src=x onerror=alert(1)>",
    "<img src=x onerror\n=alert(1)//",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    "<math><mtext></table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror=alert(1)&gt;\">",
    "<iframe src=javascript:alert(1)></iframe>",
    "<iframe srcdoc=\"<script>alert(1)</script>\"></iframe>",
    "<object data=javascript:alert(1)></object>",
    "<embed src=javascript:alert(1)>",
    "<body onload=alert(1)>",
    "<details open ontoggle=alert(1)>",
    "<input autofocus onfocus=alert(1)>",
    "<form action=javascript:alert(1)><button>x</button></form>",
    "<a href=javascript:alert(1)>x</a>",
    "<style>@import 'https://evil.example/x.css';</style>",
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<base href=https://evil.example/>",
    "<p style=\"background:url(https://evil.example/x.png)\">x</p>",
    "<noscript><p title=\"</noscript><img src=x onerror=alert(1)>\"></noscript>",
    "<template><script>alert(1)</script></template>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](  java\tscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    "[x](vbscript:msgbox(1))",
    "<javascript:alert(1)>",
    "![x](https://evil.example/pixel.png \"onerror=alert(1)\")",
    "[x]: https://a.example \"\\\" onmouseover=alert(1) x=\\\"\"\n\n[x]",
    "```\"><script>alert(1)</script>\nx\n```",
    "```html\n<script>alert(1)</script><img src=x onerror=alert(1)>\n```",
    "```js\n\"</span><script>alert(1)</script>\n```",
    "```html onload=alert(1)\n<b onload=alert(1)>\n```",
    "$<script>alert(1)</script>$",
    "$x < y <img src=x onerror=alert(1)>$",
    "$\\text{<script>alert(1)</script>}$",
    "$\\text{</mtext></math><img src=x onerror=alert(1)>}$",
    "$\\href{javascript:alert(1)}{x}$",
    "$\\url{javascript:alert(1)}$",
    "$\\htmlClass{x}{y} \\class{panel}{z} \\style{color:red}{x} \\cssId{log}{x}$",
    "$\\color{red;background:url(https://evil.example/x.png)} x$",
    "$\\textcolor{url(https://evil.example)}{x}$",
    "$\\includegraphics{https://evil.example/x.png}$",
    "$$\\begin{array}{c\" onload=\"alert(1)} x \\end{array}$$",
    "$$\\hspace{1em\" onclick=\"alert(1)} x$$",
    "\\(<math><annotation-xml encoding=\"text/html\"><script>alert(1)</script>\\)",
    "\\[<mglyph src=x><style>*{}</style>\\]",
    "$\\operatorname{<img src=x onerror=alert(1)>}$",
];

/// The elements that rendered answers may hold: text, and formulas.
const ELEMENTS: [&str; 47] = [
    "a",
    "blockquote",
    "br",
    "code",
    "del",
    "em",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "li",
    "ol",
    "p",
    "pre",
    "span",
    "strong",
    "table",
    "tbody",
    "td",
    "th",
    "thead",
    "tr",
    "ul",
    "math",
    "mfrac",
    "mi",
    "mmultiscripts",
    "mn",
    "mo",
    "mover",
    "mphantom",
    "mprescripts",
    "mroot",
    "mrow",
    "mspace",
    "msqrt",
    "mstyle",
    "msub",
    "msubsup",
    "msup",
    "mtable",
    "mtd",
    "mtext",
    "mtr",
    "munder",
    "munderover",
];

/// The tags of an HTML text as a serializer writes it: there, every `<` begins one.
fn tags(html: &str) -> Vec<&str> {
    html.split('<').skip(1).map(|rest| rest.split_once('>').unwrap_or_else(|| panic!("{html}")).0).collect()
}

#[test]
fn nothing_that_an_answer_holds_becomes_active() {
    let stage = Stage::start(settings(), echo);
    for payload in PAYLOADS {
        for text in [
            payload.to_owned(),
            format!("before {payload} after"),
            format!("> - {payload}"),
            format!("|a|\n|-|\n|{payload}|"),
        ] {
            let (status, rendered) = stage.post("/hone/v1/render", &json!({"markdown": text}));
            let html = rendered["html"].as_str().unwrap();
            assert_eq!(status, 200);
            for tag in tags(html) {
                check_tag(tag, &text, html);
            }
        }
    }
}

#[track_caller]
fn check_tag(tag: &str, text: &str, html: &str) {
    let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
    assert!(ELEMENTS.contains(&name), "<{tag}> from {text:?}: {html}");
    let Some((_, attributes)) = tag.split_once(' ') else { return };
    // The text between quotation marks is the value of an attribute.
    let names = attributes.split('"').step_by(2).map(|part| part.trim().trim_end_matches('='));
    let of_formulas = [
        "depth",
        "display",
        "displaystyle",
        "height",
        "largeop",
        "linethickness",
        "mathvariant",
        "maxsize",
        "minsize",
        "movablelimits",
        "scriptlevel",
        "stretchy",
        "symmetric",
        "width",
    ];
    let known = [&["", "href", "title", "target", "rel", "start", "class"], &of_formulas[..]].concat();
    for name in names {
        assert!(known.contains(&name), "{name} in <{tag}> from {text:?}: {html}");
    }
    if let Some((_, href)) = attributes.split_once("href=\"") {
        let is_harmless = ["http://", "https://", "mailto:"].iter().any(|scheme| href.starts_with(scheme));
        assert!(is_harmless, "<{tag}> from {text:?}");
    }
}
