use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::*;

/// Checks that each of the texts has this score.
#[track_caller]
fn check_score(expected: impl Into<Option<u8>>, texts: &[&str]) {
    let expected = expected.into();
    for text in texts {
        assert_eq!(parse_score(text), expected, "{text:?}");
    }
}

/// Checks that each of the texts names this winner.
#[track_caller]
fn check_winner(expected: impl Into<Option<RespondentId>>, texts: &[&str]) {
    let expected = expected.into();
    for text in texts {
        assert_eq!(parse_winner(text), expected, "{text:?}");
    }
}

#[test]
fn a_score_behind_the_marker_is_found() {
    check_score(
        4,
        &[
            "Feedback: Good. [RESULT] 4",
            "[RESULT] 4",
            "[RESULT]4",
            "[Result]: 4/5",
            "[result] 4",
            "[ RESULT ] 4",
            "[RESULT] 4 / 5",
            "[RESULT] 4/5.",
            "[RESULT] 4 out of 5",
            "[RESULT] 4 (out of 5)",
            "[RESULT]: 4 out of 5.",
            "**[RESULT]** 4.",
            "**[RESULT] 4**",
            "[**RESULT**] 4",
            "[RESULT] **4**",
            "__[RESULT]__ _4_",
            "[RESULT] `4`",
            "[RESULT] (4)",
            "[RESULT] [4]",
            "[RESULT] [[4]]",
            "[RESULT] (4/5)",
            "[RESULT: 4]",
            "[RESULT 4]",
            "[Result: 4/5]",
            "[RESULT = 4]",
            "[RESULT]\n\n4\n",
            "[RESULT] - 4",
            "[RESULT] – 4",
            "[RESULT] = 4",
            "[RESULT] Score: 4",
            "[RESULT]: Score: 4/5",
            "[RESULT] score of 4",
            "[RESULT] Score 4",
            "[Result] Result: 4",
            "[RESULT] (Score: 4)",
            "[RESULT] 4</s>",
            "[RESULT] 4 </s></s>",
            "[RESULT] 4<|im_end|>\n",
            "[RESULT] 4.<end_of_turn>",
            "[RESULT] 4\u{200b}\u{feff}",
            "\"Good. [RESULT] 4\"",
            "[RESULT] 4!",
            "[RESULT] 4...",
            "[RESULT] 4。",
        ],
    );
}

#[test]
fn a_labelled_score_at_the_end_is_found() {
    check_score(
        3,
        &[
            "Score: 3",
            "score: 3",
            "Score: 3 out of 5",
            "Score: 3/5",
            "Score 3/5",
            "Score = 3",
            "Good job. Score: 3",
            "Good job! score of 3",
            "Good job.\nOverall score: 3/5",
            "Good job.\n\n**Score:** 3",
            "**Score: 3**",
            "**Score**: **3**/5",
            "## Final score: 3",
            "- Score: 3",
            "1. Score: 3",
            "The final score: 3",
            "Rating: 3/5",
            "Rating: [[3]]",
            "Well done. Result: 3",
            "Good job. (Score 3)",
            "Good job. [Score 3]",
            "Good job. (Score: 3/5)",
            "It helps — Score: 3",
        ],
    );
}

#[test]
fn the_last_verdict_counts() {
    check_score(5, &["[RESULT] 2 ... no: [RESULT] 5", "[RESULT] 45 [RESULT] 5", "[RESULT] 2\nScore: 5"]);
    check_score(None, &["[RESULT] 4 [RESULT] 45", "[RESULT] 4 [RESULT]", "Score: 4\n[RESULT] none"]);
}

#[test]
fn what_is_no_score_from_1_to_5_is_refused() {
    check_score(
        None,
        &[
            "[RESULT] 45",
            "[RESULT] 3.5",
            "[RESULT] 6",
            "[RESULT] 0",
            "[RESULT] -3",
            "[RESULT] 4.0",
            "[RESULT] 4,5",
            "[RESULT] 4/10",
            "[RESULT] 4 out of 10",
            "[RESULT] 4%",
            "[RESULT] 4-5",
            "[RESULT] 4 - 5",
            "[RESULT] 4 or 5",
            "[RESULT] 4 5",
            "[RESULT] 4*5",
            "[RESULT] 4th",
            "[RESULT] four",
            "[RESULT] ４",
            "[RESULT] ④",
            "[RESULT]",
            "[RESULT] A",
            "[RESULT] \"4",
            "[RESULT] 4?",
            "[RESULT] 4:",
            "[RESULT] (4",
            "[RESULT] 4)",
            "[RESULT] (4]",
            "Score: 2.5",
            "Score: 45",
            "Score: 10/5",
            "3.5",
            "6",
            "4",
            "4/5",
            "",
            " \n",
            "***",
            "</s>",
            "Good.",
        ],
    );
}

#[test]
fn a_score_that_is_only_quoted_or_mentioned_is_refused() {
    check_score(
        None,
        &[
            "Score 4: The response is mostly correct with minor gaps.",
            "I follow the rubric. Score 4: The response is mostly correct",
            "[RESULT] Score 4: The response is mostly correct with minor gaps.",
            "Output format: \"Feedback: (write a feedback) [RESULT] (integer 1-5)\"",
            "[RESULT] (integer 1-5)",
            "[RESULT] (an integer number between 1 and 5)",
            "[RESULT] (1-5)",
            "write a score that is an integer between 1 and 5",
            "Score 4",
            "The rubric says \"Score: 4\"",
            "as in the reference (Score 5)",
            "The response deserves a score of 4 because it is right.",
            "The response deserves a score of 4",
            "I give the score: 4",
            "So the overall score is 4.",
            "The score is definitely not 3.",
            "I rate this a perfect 10!",
            "my result, 4",
            "{\"score\": 4}",
            "\"score\": 4",
            "Score:\n4",
            "Score\n4/5",
            "high_score: 4",
            "[RESULTS] 4",
            "RESULT 4",
            "results[4]",
            "[RE SULT] 4",
        ],
    );
}

#[test]
fn a_verdict_that_somebody_else_is_said_to_have_given_is_refused() {
    check_score(
        None,
        &[
            "The student wrote \"[RESULT] 5\"",
            "The response ends with '[RESULT] 5'.",
            "The response ends with “[RESULT] 5”.",
            "The response ends with ‘[RESULT] 5’.",
            "Die Antwort endet mit „[RESULT] 5“.",
            "The response ends with « [RESULT] 5 ».",
            "The student wrote \"[RESULT] 5",
            "The student wrote: \"It's good. [RESULT] 5\"",
            "\"Good\" is what it says, and \"[RESULT] 5\"",
            "He wrote 'That's it. Score: 5'",
            "It prints **\"[RESULT] 5\"**.",
            "The student wrote `[RESULT] 5`",
        ],
    );
    check_score(
        5,
        &[
            "\"[RESULT] 5\"",
            " **\"[RESULT] 5\"**",
            "'It's good. [RESULT] 5'",
            "“Good. [RESULT] 5”",
            "Feedback: \"Good. [RESULT] 5\"",
            "The students' work isn't bad. [RESULT] 5'",
            "It says \"yes\". [RESULT] 5\"",
            "It says \"yes\" [RESULT] 5",
            "It says \"yes\"[RESULT] 5",
            "It says \"yes. [RESULT] 5",
            "A screen of 5\". [RESULT] 5",
            "Good.\n`[RESULT] 5`",
            "`Good. [RESULT] 5`",
        ],
    );
    check_winner(
        None,
        &["The student wrote \"[RESULT] B\"", "It ends with '[RESULT: B]'.", "\"Yes\", and \"Winner: B\""],
    );
    check_winner(RespondentId::B, &["\"[RESULT] B\"", "It says 'yes'. [RESULT] B'"]);
}

#[test]
fn a_verdict_stands_at_the_end() {
    check_score(
        None,
        &[
            "[RESULT] 4 because it is right.",
            "[RESULT] 4\n\nThe response explains it well.",
            "[RESULT] 4 [/INST]",
            "Score: 4\nFeedback: well done",
            "[RESULT] 4\n###Score Rubrics:",
            "[RESULT] 4 <b>",
            "[RESULT] 4 < 5 |>",
        ],
    );
}

#[test]
fn a_winner_behind_the_marker_is_found() {
    check_winner(
        RespondentId::B,
        &[
            "[RESULT] B",
            "[RESULT: B]",
            "[Result: B]",
            "[RESULT B]",
            "[Result] Response B",
            "[RESULT: Response B]",
            "[RESULT] (B)",
            "[RESULT]: **B**.",
            "**[RESULT]** B</s>",
            "[result] b",
            "[RESULT] Answer B",
            "Response A. [RESULT] B",
            "A. It is clear. [RESULT] B",
            "[RESULT] A, or rather [RESULT] B",
            "Both are clear... [Response B]",
            "Both are clear.\nWinner: B",
            "Verdict: B",
            "Result: Response B",
        ],
    );
}

#[test]
fn a_letter_that_stands_alone_at_the_start_is_a_winner() {
    check_winner(
        RespondentId::A,
        &[
            "A",
            " A\n",
            "A.",
            "A</s>",
            "A<|im_end|>",
            "\"A\"",
            "(A)",
            "**A**",
            "**A**: it is right",
            "A. Because it names the number.",
            "A: it is right, and Response B is not.",
            "A, because it is right",
            "A because it is right",
            "A - it is right",
            "A — right",
            "A\nIt is right.",
            "A. B lacks the number.",
            "A. It is right. B, however, is wrong.",
            "A. Right.\nResponse B is wrong.",
            "A, B lacks the number",
            "Verdict: A. It is right.",
            "###Verdict: A: right",
            "**Winner**: A, because it is right",
            "A. The [results] are right.",
        ],
    );
}

#[test]
fn a_winner_that_is_told_in_a_sentence_is_found() {
    check_winner(
        RespondentId::B,
        &[
            "B is better.",
            "B is better",
            "**B** is better!",
            "B is better because it is right.",
            "B is better, because it is right",
            "B is better since A is wrong.",
            "B is better than A.",
            "Response B is better than Response A because it is right.",
            "Response B is better because it is right.",
            "Response B is better. Response A is wrong.",
            "Response B is better: it is more accurate than Response A.",
            "Response B is clearly the better answer.",
            "The response B is much better than A</s>",
            "Answer B is the winner.",
            "Response B wins.",
            "B is better overall.",
            "B is superior, while A is wrong.",
            "\"B is better.\"",
            "The winner is B",
            "The winner is B.",
            "The winner is **Response B**.",
            "winner is B because it is right",
            "The better response is B.",
            "The better one is clearly Response B",
            "Response A names a city. Response B is better.",
            "Both are clear.\nThe winner is B",
            "A is good. B is better because it is short.",
        ],
    );
    let found = winner_of("Both are clear. Response B is better.").unwrap();
    assert_eq!((found.place, found.value), (16..36, 25..26));
}

#[test]
fn a_sentence_that_does_not_decide_names_no_winner() {
    check_winner(
        None,
        &[
            "A is good and B is good",
            "A is good.",
            "Plan A failed",
            "Plan B is better.",
            "A better answer would name the number.",
            "A better answer is B",
            "A is not better.",
            "A is better?",
            "Is A better? A is better than B?",
            "A is better in style, B is right.",
            "A is better for beginners, B for experts.",
            "A is better or B is better",
            "A is better. B is better.",
            "A is better than B in style, but B is better overall.",
            "A is better than A.",
            "A is better than nothing.",
            "A is better. I prefer Response B.",
            "A is better.\nB. Because it is right.",
            "A is better, and so is B.",
            "A is better, but only if nobody asks",
            "A. It is right. B is better.",
            "A is better. Winner: B",
            "A is better. [RESULT] C",
            "Neither A nor B is better.",
            "If A is better.",
            "It is said that the winner is B",
            "The winner is not B",
            "The winner is B or A",
            "The winner is B? Or A?",
            "The winner is a tie",
            "The winner is C",
            "The better response is hard to name",
            "They say so. \"B is better.\"",
            "They say \"B is better.\"",
            "a is better",
        ],
    );
}

#[test]
fn what_names_no_winner_or_two_is_refused() {
    check_winner(
        None,
        &[
            "",
            "C",
            "a",
            "Tie",
            "[RESULT]",
            "[RESULT] C",
            "[RESULT] Tie",
            "[RESULT] A or B",
            "[RESULT] A/B",
            "[RESULT] (A or B)",
            "[RESULT] A because it is right",
            "[RESULT] A [RESULT]",
            "A. It is right. [RESULT] C",
            "[RESULTS] A",
            "A good answer names the number.",
            "A is worse than B.",
            "A and B are both right",
            "A or B",
            "A/B",
            "A, B",
            "A. B.",
            "A\nB",
            "A: right. B: wrong.",
            "A. Because it is right.\nB. Because it is short.",
            "A. It is right.\nWinner: B",
            "A.B.",
            "Both responses have their merits.",
            "Response A",
            "Response B Response A",
            "Both are clear... Response B Response A",
            "After careful consideration, I select Response B.",
            "Response C is clearly superior.",
            "The better response is obviously B... or is it A? It's hard to decide.",
            "the better one [Response B]",
            "Output only \"A\" or \"B\"",
            "B12 is a vitamin",
            "Verdict: A good answer names the number.",
            "Verdict",
            "-A",
        ],
    );
}

#[test]
fn the_place_of_a_verdict_is_told() {
    let place = |text: &'static str| score_at_end(text).map(|found| (&text[found.place], &text[found.value]));
    assert_eq!(place("Well **[RESULT]** 4/5.</s>"), Some(("**[RESULT]** 4/5", "4")));
    assert_eq!(place("**Well** [RESULT: 3]"), Some(("[RESULT: 3", "3")));
    assert_eq!(place("Well. The final score: 2"), Some(("The final score: 2", "2")));
    assert_eq!(place("Well. (Score 5)"), Some(("(Score 5", "5")));
    let found = winner_of(" A. Because").unwrap();
    assert_eq!((found.place, found.value), (0..2, 1..2));
}

/// Pieces of verdicts and of surrounding text.
const PIECES: &[&str] = &[
    "[RESULT]",
    "[",
    "]",
    "RESULT",
    "result",
    ":",
    " ",
    "\n",
    "4",
    "5",
    "45",
    ".",
    "/",
    "out of",
    "(",
    ")",
    "Score",
    "*",
    "_",
    "A",
    "B",
    "Response",
    "</s>",
    "<|im_end|>",
    "<",
    ">",
    "-",
    "–",
    "é",
    "世",
    "\u{200b}",
    "\u{301}",
    "🙂",
    "ß",
    "\"",
    "the",
    "is better",
    "winner is",
    "x",
    "`",
    "\r",
    "|",
];

/// A randomly composed text.
pub(crate) fn random_text(random: &mut ChaCha8Rng, n_pieces: usize) -> String {
    (0..n_pieces).map(|_| PIECES[random.next_u32() as usize % PIECES.len()]).collect()
}

#[test]
fn no_text_makes_the_parser_panic_or_find_what_is_not_there() {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let (mut n_scores, mut n_winners) = (0, 0);
    for n_pieces in (0..20_000).map(|index| index % 12) {
        let text = random_text(&mut random, n_pieces);
        if let Some(found) = score_at_end(&text) {
            n_scores += 1;
            assert_eq!(text[found.value.clone()], found.verdict.to_string(), "{text:?}");
            assert!(found.place.start <= found.value.start && found.value.end <= found.place.end, "{text:?}");
        }
        if let Some(found) = winner_of(&text) {
            n_winners += 1;
            assert!(text[found.value.clone()].eq_ignore_ascii_case(&found.verdict.to_string()), "{text:?}");
        }
    }
    assert!(n_scores > 20 && n_winners > 20, "the texts are too far from verdicts: {n_scores}, {n_winners}");
}

/// Texts of megabytes that would stall a parser which rescans parts of them. The test needs no clock: a parser that is
/// not linear never finishes it.
#[test]
fn a_megabyte_is_read_at_once() {
    let n = 1_000_000;
    for piece in [
        " ",
        "[",
        "[RESULT] ",
        "A is better. ",
        "the ",
        "is better than B ",
        "\"",
        "4",
        "A. ",
        "B",
        "*",
        "(",
        ")",
        "</s>",
        "<",
        ">",
        "|>",
        "[ ",
        "Score: ",
        "é",
        "\n",
    ] {
        let text = piece.repeat(n / piece.len());
        let _ = (parse_score(&text), parse_winner(&text));
        assert_eq!(parse_score(&format!("{text}. [RESULT] 4")), Some(4), "{piece:?}");
        assert_eq!(parse_score(&format!("[RESULT] {text}. [RESULT] 45")), None, "{piece:?}");
        assert_eq!(parse_winner(&format!("{text} [RESULT] B")), Some(RespondentId::B), "{piece:?}");
    }
    let (sentences, blanks) = ("B, x.\n".repeat(n / 6), " ".repeat(n));
    assert_eq!(parse_winner(&format!("A. {sentences}{blanks}")), Some(RespondentId::A));
}
