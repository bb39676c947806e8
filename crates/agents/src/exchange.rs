//! The outcome of one question, folded from the messages about it.
//!
//! Every observer (a terminal, a script, a story, a server) feeds messages to an [`Exchange`] and shows the
//! [`ExchangeChange`] that each causes. The fold is pure, and the order of messages from different agents does not
//! matter: a grade may come before the answer's own message if its reader subscribed late.

use hone_protocol::{
    Chunk, Comparison, Envelope, GenerateError, Grade, GradedAnswer, Payload, Query, QueryId, Rating, Recall,
    RespondentId, Response,
};

/// The events that follow every question if nothing goes wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// Every answer is graded.
    pub grades: bool,
    /// A second respondent answers too; with grades, the two answers are compared.
    pub respondent_b: bool,
}

/// One respondent's reply to a question.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RespondentReply {
    /// The question as this respondent knows it; the engram of its answer has the same id.
    pub query_id: Option<QueryId>,
    /// Its answer.
    pub response: Option<Response>,
    /// Why it could not answer.
    pub failure: Option<GenerateError>,
    /// The answer's grade, which may be unscored.
    pub grade: Option<Grade>,
}

impl RespondentReply {
    /// Whether the respondent is done.
    pub fn has_ended(&self) -> bool {
        self.response.is_some() || self.failure.is_some()
    }

    /// Whether its answer can be compared with another one.
    pub fn is_worth_comparing(&self) -> bool {
        self.response.as_ref().is_some_and(|response| response.why_not_judged().is_none())
    }
}

/// A question and its outcome so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    id: QueryId,
    replies: [RespondentReply; 2],
    recalls: Vec<Recall>,
    comparison: Option<Comparison>,
    rating: Option<Rating>,
    is_cancelled: bool,
}

/// The effect of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ExchangeChange<'a> {
    /// Nothing: the message is about another question, or about something an exchange does not track.
    Nothing,
    /// The question was asked.
    Asked(&'a Query),
    /// A piece of a respondent's answer, or progress before it.
    Chunk(RespondentId, &'a Chunk),
    /// A respondent has answered.
    Answered(RespondentId, &'a Response),
    /// A respondent could not answer.
    Failed(RespondentId, &'a GenerateError),
    /// Memory has given recollections to a respondent.
    Recalled(RespondentId, &'a Recall),
    /// A respondent's answer was graded, or could not be.
    Graded(RespondentId, &'a GradedAnswer),
    /// The two answers were compared, or could not be.
    Compared(&'a Comparison),
    /// A person has rated the answer.
    Rated(Option<Rating>),
    /// The question was withdrawn.
    Cancelled,
}

impl Exchange {
    /// The question with this id, without any messages yet.
    pub fn new(id: QueryId) -> Exchange {
        Exchange {
            id,
            replies: Default::default(),
            recalls: Vec::new(),
            comparison: None,
            rating: None,
            is_cancelled: false,
        }
    }

    /// The question's id.
    pub fn id(&self) -> QueryId {
        self.id
    }

    /// A respondent's reply.
    pub fn reply(&self, respondent: RespondentId) -> &RespondentReply {
        &self.replies[place(respondent)]
    }

    /// Respondent A's recollections from memory, in the order of the searches.
    pub fn recalls(&self) -> &[Recall] {
        &self.recalls
    }

    /// The comparison of the two answers.
    pub fn comparison(&self) -> Option<&Comparison> {
        self.comparison.as_ref()
    }

    /// A person's rating of the answer.
    pub fn rating(&self) -> Option<Rating> {
        self.rating
    }

    /// Whether the question was withdrawn.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled
    }

    /// Whether everything that can be expected has arrived. An answer that a respondent failed to give or to finish is
    /// neither graded nor compared. Answers that could not be graded are still compared.
    pub fn is_complete(&self, expected: Expected) -> bool {
        let respondents = if expected.respondent_b { &self.replies[..] } else { &self.replies[..1] };
        let have_ended = respondents.iter().all(RespondentReply::has_ended);
        let mut answered = respondents.iter().filter(|reply| reply.response.is_some());
        let are_graded = !expected.grades || answered.all(|reply| reply.grade.is_some());
        let compares =
            expected.respondent_b && expected.grades && respondents.iter().all(RespondentReply::is_worth_comparing);
        have_ended && are_graded && (!compares || self.is_cancelled || self.comparison.is_some())
    }

    /// Processes a message.
    pub fn take<'a>(&mut self, envelope: &'a Envelope) -> ExchangeChange<'a> {
        if envelope.correlation_id.or(envelope.query_id) != Some(self.id) {
            return ExchangeChange::Nothing;
        }
        let respondent = envelope.respondent_id.unwrap_or(RespondentId::A);
        if ![RespondentId::A, RespondentId::B].contains(&respondent) {
            // A conversation has these two respondents; other answers to its question are not part of it.
            return ExchangeChange::Nothing;
        }
        let reply = &mut self.replies[place(respondent)];
        reply.query_id = envelope.query_id.or(reply.query_id);
        match &envelope.payload {
            Payload::QueryReceived(query) => ExchangeChange::Asked(query),
            Payload::ResponseChunk(chunk) => ExchangeChange::Chunk(respondent, chunk),
            Payload::ResponseGeneration(response) => {
                reply.response = Some(response.clone());
                ExchangeChange::Answered(respondent, response)
            }
            Payload::ResponseFailed(error) => {
                reply.failure = Some(error.clone());
                ExchangeChange::Failed(respondent, error)
            }
            Payload::CritiqueResult(critique) => {
                reply.grade = Some(critique.grade.clone());
                ExchangeChange::Graded(respondent, critique)
            }
            Payload::MemoryRecalled(recall) => {
                if respondent == RespondentId::A {
                    self.recalls.push(recall.clone());
                }
                ExchangeChange::Recalled(respondent, recall)
            }
            Payload::PairwiseResult(comparison) => {
                self.comparison = Some(comparison.clone());
                ExchangeChange::Compared(comparison)
            }
            Payload::UserFeedback(feedback) => {
                self.rating = feedback.rating;
                ExchangeChange::Rated(feedback.rating)
            }
            Payload::QueryCancelled(_) => {
                self.is_cancelled = true;
                ExchangeChange::Cancelled
            }
            _ => ExchangeChange::Nothing,
        }
    }
}

fn place(respondent: RespondentId) -> usize {
    usize::from(respondent != RespondentId::A)
}

#[cfg(test)]
mod tests {
    use hone_protocol::{Feedback, Judging, Nothing, Preference, RecallMode, SessionId, Stored};

    use super::*;

    const QUESTION: QueryId = QueryId::from_bits(1);
    const QUESTION_OF_B: QueryId = QueryId::from_bits(2);
    const OTHER: QueryId = QueryId::from_bits(3);

    fn response(answer: &str) -> Payload {
        Payload::ResponseGeneration(Response::new("why?", answer, "m"))
    }

    fn graded(score: Option<u8>) -> Payload {
        let judging = Judging { failure: score.is_none().then(|| "timeout".to_owned()), ..Judging::default() };
        let grade = Grade { score, judging, ..Grade::default() };
        Payload::CritiqueResult(GradedAnswer { query: "why?".to_owned(), answer: "because".to_owned(), grade })
    }

    fn compared() -> Payload {
        Payload::PairwiseResult(Comparison {
            original_query_id: QUESTION,
            query_id_a: QUESTION,
            query_id_b: QUESTION_OF_B,
            score_a: Some(4),
            score_b: Some(2),
            preference: Preference { winner: Some(RespondentId::A), ..Preference::default() },
        })
    }

    /// The message for a line of a scenario: sender, event, and an optional text.
    fn message(line: &str) -> Envelope {
        let mut words = line.split(' ');
        let (who, what, text) = (words.next().unwrap(), words.next().unwrap(), words.next());
        let payload = match what {
            "asks" => Payload::QueryReceived(Query::new("why?", "m")),
            "says" => Payload::ResponseChunk(Chunk::Text(text.unwrap().to_owned())),
            "answers" => response(text.unwrap()),
            "fails" => Payload::ResponseFailed(GenerateError::Stopped),
            "recalls" => {
                let search = text.unwrap().to_owned();
                Payload::MemoryRecalled(Recall { mode: RecallMode::Tool, search, engrams: Vec::new() })
            }
            "graded" => graded(text.map(|score| score.parse().unwrap())),
            "compared" => compared(),
            "rated" => Payload::UserFeedback(Feedback { rating: Some(Rating::Good) }),
            "cancelled" => Payload::QueryCancelled(Nothing {}),
            "stored" => Payload::MemoryStored(Stored { sequence: 7 }),
            other => panic!("{other}"),
        };
        let (id, correlation, respondent) = match who {
            "A" => (QUESTION, QUESTION, RespondentId::A),
            "B" => (QUESTION_OF_B, QUESTION, RespondentId::B),
            _ => (OTHER, OTHER, RespondentId::A),
        };
        Envelope::new("tester", SessionId::from_bits(9), payload).about(id, correlation, respondent)
    }

    /// A change in a word or two.
    fn named(change: ExchangeChange<'_>) -> String {
        match change {
            ExchangeChange::Nothing => "-".to_owned(),
            ExchangeChange::Asked(query) => format!("asked {}", query.query),
            ExchangeChange::Chunk(who, Chunk::Text(text)) => format!("{who} {text}"),
            ExchangeChange::Chunk(who, chunk) => format!("{who} {chunk:?}"),
            ExchangeChange::Answered(who, response) => format!("{who} answered {}", response.answer),
            ExchangeChange::Failed(who, error) => format!("{who} failed: {error}"),
            ExchangeChange::Recalled(who, recall) => format!("{who} recalled {}", recall.search),
            ExchangeChange::Graded(who, critique) => format!("{who} graded {:?}", critique.grade.score),
            ExchangeChange::Compared(comparison) => format!("{:?} is better", comparison.preference.winner.unwrap()),
            ExchangeChange::Rated(rating) => format!("{rating:?}"),
            ExchangeChange::Cancelled => "cancelled".to_owned(),
        }
    }

    /// Checks lines `message => change`; a `!` at the end says that the exchange is complete from there on.
    #[track_caller]
    fn check(expected: Expected, scenario: &str) -> Exchange {
        let mut exchange = Exchange::new(QUESTION);
        for line in scenario.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (said, changed) = line.split_once(" => ").unwrap();
            let envelope = message(said);
            let change = named(exchange.take(&envelope));
            let mark = if exchange.is_complete(expected) { " !" } else { "" };
            assert_eq!(format!("{change}{mark}"), changed, "after {said}");
        }
        exchange
    }

    const ALONE: Expected = Expected { grades: false, respondent_b: false };
    const GRADED: Expected = Expected { grades: true, respondent_b: false };
    const COMPARED: Expected = Expected { grades: true, respondent_b: true };

    #[test]
    fn an_answer_alone_is_all_that_is_expected_without_a_judge() {
        let exchange = check(
            ALONE,
            "A asks => asked why?
             A recalls fire => A recalled fire
             A says be => A be
             other says no => -
             other answers no => -
             A answers because => A answered because !
             A recalls ice => A recalled ice !
             A stored => - !
             A rated => Some(Good) !",
        );
        assert_eq!(exchange.reply(RespondentId::A).response.as_ref().unwrap().answer, "because");
        let searches: Vec<&str> = exchange.recalls().iter().map(|recall| recall.search.as_str()).collect();
        assert_eq!((searches, exchange.rating()), (vec!["fire", "ice"], Some(Rating::Good)));
    }

    #[test]
    fn a_grade_is_waited_for_and_may_come_first() {
        check(GRADED, "A answers because => A answered because\n A graded 4 => A graded Some(4) !");
        check(GRADED, "A graded 4 => A graded Some(4)\n A answers because => A answered because !");
        check(GRADED, "A answers because => A answered because\n A graded => A graded None !");
        let exchange = check(GRADED, "A cancelled => cancelled\n A fails => A failed: the engine has stopped !");
        assert!(exchange.is_cancelled());
    }

    #[test]
    fn two_answers_are_compared_even_where_one_has_no_score() {
        let exchange = check(
            COMPARED,
            "A answers because => A answered because
             A graded 4 => A graded Some(4)
             B answers so => B answered so
             B graded 2 => B graded Some(2)
             A compared => A is better !",
        );
        assert_eq!(exchange.reply(RespondentId::B).query_id, Some(QUESTION_OF_B));
        check(
            COMPARED,
            "B answers so => B answered so
             B graded => B graded None
             A answers because => A answered because
             A graded 4 => A graded Some(4)
             A compared => A is better !",
        );
        check(
            COMPARED,
            "A answers because => A answered because
             B fails => B failed: the engine has stopped
             A graded 4 => A graded Some(4) !",
        );
        let without_judge = Expected { grades: false, respondent_b: true };
        check(without_judge, "A answers because => A answered because\n B answers so => B answered so !");
    }
}
