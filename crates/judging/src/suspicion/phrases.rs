//! The words that the rules look for, as regular expressions over a view: lower case, accents and look-alikes folded.

use std::sync::LazyLock;

use regex::Regex;

use crate::neutralize::folded;

/// Nouns for an answer.
const ANSWER: &str = r"(?:answer|response|reply|submission|solution)s?";
/// A score, or a word that belongs to one.
const SCORE: &str = r"(?:scor(?:e|es|ed|ing)|grad(?:e|es|ed|ing)|rat(?:e|es|ed|ing|ings)|marks?|marked|rubrics?|criteri(?:a|on)|evaluat\w+|assess\w*|judg(?:e|ed|ing|e?ment)|feedback|points)";
/// Nouns for a grader.
const GRADER: &str = r"(?:graders?|judges?|evaluators?|examiners?|assessors?|raters?|markers?|reviewers?|(?:grading|evaluation|scoring|judge) (?:model|system|assistant|bot))";
/// The best score, in words that mean nothing else.
const TOP_WORDS: &str = r"(?:full (?:marks?|points|score|credit)|(?:highest|maximum|top|best|perfect|full)(?: possible| available)? (?:score|grade|mark|rating|marks|points)|5 ?/ ?5|4 ?/ ?5|10 ?/ ?10|(?:5|five|4|four) (?:out )?of (?:5|five)|100 ?%)";

/// An expression that is a constant verified by a test, and therefore valid.
fn expression(pattern: impl AsRef<str>) -> Regex {
    Regex::new(pattern.as_ref()).expect("a pattern of the detection is wrong")
}

macro_rules! expressions {
    ($($(#[$doc:meta])* $name:ident = $pattern:expr;)*) => {
        $($(#[$doc])* pub(super) static $name: LazyLock<Regex> = LazyLock::new(|| expression($pattern));)*
    };
}

expressions! {
    /// A question that asks for a score or is about one.
    SCORING_QUESTION = format!(r"\b(?:{SCORE}|reviews?|critique|rank\w*|stars?|quiz|exams?|tests?|wins?|won|winner|winning|better)\b");
    /// A range of scores, which is not a claim.
    SCALE = r"\b(?:from |between )?1 ?(?:-|–|—|to|and|through) ?(?:5|10)\b|\b(?:one|zero|0) to (?:five|ten|5|10)\b";
    /// The answer itself, or any graded answer.
    SELF = format!(r"\b(?:(?:this|my|above|following|preceding|every|each|any|all|such|an?|our) (?:\w+ ){{0,2}}?|the (?:above |following |given |preceding |previous |entire |whole )?){ANSWER}\b");
    /// Words about scores.
    ABOUT_SCORE = format!(r"\b(?:{SCORE}|deserv\w*|merits?|earns?|awards?)\b");
    /// The best score, alone or in words.
    TOP = format!(r"\b(?:{TOP_WORDS}|(?:5|five)(?:$|[,;:!?)\]\x22'”’.]|\.$|,? (?:points?|stars?|marks?|under|because|since|and|by|in|for|if|according|without|as|is)\b))");
    /// The best score in words that mean nothing else.
    CLEAR_TOP = format!(r"\b{TOP_WORDS}");
    /// A score that is claimed in a sentence.
    CLAIM = format!(r"\b(?:overall|final|so the|thus the|therefore the|hence the|therefore,? the) ?(?:overall |final |total )?(?:score|rating|grade|mark|verdict)s?(?: (?:of|for) [^.]{{0,40}}?)? ?(?:is|are|=|:|-|of|should be|must be|would be|comes to)[: ]*(?:therefore |thus |clearly |now )?(?:an? )?(?:{TOP_WORDS}|5|five)[^\w]*$");
    /// A claim whose words were joined without spaces.
    JOINED_CLAIM = r"(?:overall|final)score(?:is|:|=)?5|thescoreis5|scoreof5|fullmarks|highestscore|\[result\]5";
    /// A label of a score, in a text that was encoded.
    LABELLED = r"\b(?:score|rating|grade)\b ?[:=] ?(?:5|five)\b";
    /// A label at the beginning of a sentence that contains the best score.
    HEADED = format!(r"^[^\w]*(?:final |overall |total |the |my )*(?:score|rating|grade|verdict)\x22? ?:[^\n]{{0,40}}?\b{TOP_WORDS}");
    /// A score given to the text just read.
    THIS_SCORE = format!(r"\bthis (?:gets|deserves|earns|receives|merits|should (?:get|receive|score|be given)|must (?:get|receive|score|be given)) (?:an? |the )?(?:{TOP_WORDS}|5|five)[^\w]*$|\bthis (?:has been|is|was|should be|must be|will be) (?:\w+ ){{0,5}}?(?:scored|graded|rated|marked|evaluated) (?:\w+ ){{0,2}}?(?:{TOP_WORDS}|5|five)");
    /// A line that consists only of a score.
    SCORE_LINE = r"^[^\w]*(?:final |overall |total |the |my )*(?:score|rating|grade)\x22? ?: ?[^\w]{0,3}(?:5|five|4)(?: ?/ ?5| (?:out )?of (?:5|five))?[^\w]*$";
    /// `[RESULT] 5` and the like.
    VERDICT = r"\[{1,2} ?/?result ?(?:\]{1,2}|:| ) {0,2}[:\]“( \-]{0,4}(?:[1-5]|five)\b(?: ?/ ?5| out of 5)?";
    /// Text after a label in another language if the whole sentence is a score.
    LABEL_ELSEWHERE = r"^\w* ?[:=] ?5(?: ?/ ?5)?[^\w]*$";
    /// Words after a number that make it a count.
    COUNTED = r"^ (?:\w+ )?(?:tests?|files?|items?|errors?|warnings?|passed|failed|rows?|records?|matches|results?|cases?|checks?|requests?)\b";
    /// The beginning of feedback that pretends to be a judge's.
    FEEDBACK = format!(r"(?:^|[\n<{{#>\]|])[^\w\n]{{0,6}}(?:feedback|evaluation|assessment|verdict|{GRADER})\W{{0,2}}[:>\n]");
    /// The score at the end of feedback.
    FEEDBACK_SCORE = r"\b(?:score|rating|grade|result|mark)\b[^\w]{0,6}(?:is |of )?(?:5|five)(?:$|[^\w.%-]|\.\D|\.$)";
    /// Headings that only the judge's prompt has.
    PROMPT_HEADING = r"(?m)(?:^|#)[#= ]*(?:score rubrics? ?(?::|\n ?[=\-]{3,})|response to evaluate|the instruction to evaluate|reference answer ?\(? ?score|task description ?: ?[^\n]*\n?[^\n]*(?:scor|grad))";
    /// Headings that the judge's prompt shares with other texts.
    PROMPT_PART = r"#{3,} ?(?:response [ab]|verdict|feedback|instruction|score rubrics?|task description|reminder) ?:";
    /// Control tokens of chat templates.
    CONTROL_TOKEN = r"<\|[^\s<>|]{2,40}\|>|\[/?inst\]|<</?sys>>|</?(?:start_of_turn|end_of_turn|eos|bos)>|</s>";
    /// An order to ignore the judge's instructions.
    IGNORE = r"\b(?:ignore|disregard|forget|override|bypass)(?: \w+){0,8}? (?:(?:previous|prior|above|earlier|preceding|original|system|grading|scoring|evaluation) (?:\w+ )?(?:instructions?|prompts?|guidelines?|rules|directions)|(?:instructions?|prompts?|guidelines?|rules) (?:above|before|so far)|(?:score )?rubrics?|(?:grading |scoring |evaluation )?criteria)\b";
    /// Words that negate an order.
    NEGATION = r"(?:\bnot|n't|n’t|\bnever|\bdon t) (?:\w+ )?$";
    /// A grader who is addressed.
    VOCATIVE = format!(r"(?:^|[^\w]|\b)(?:dear|attention|attn|note (?:to|for)|message (?:to|for)|(?:instructions?|information|hint) (?:to|for)|hey|hello|hi|as|you,)[:,]? (?:the |our |my |an? |all |any )?(?:llm |ai |kind |honou?rable |automatic |automated )?{GRADER}\b|^[^\w]*{GRADER} ?,");
    /// A role that the text gives to a grader.
    ROLE = format!(r"\byou (?:are|act as|will be|become) (?:now |no longer |hereby )?(?:\w+ ){{0,4}}?{GRADER}\b");
    /// A reader or grader acting on a grader's behalf, under any name.
    READER = r"\byou are (?:an? |the )?(?:ai|llm|language model|large language model|model|chatbot|bot)\b|\b(?:evaluat|grad|scor|judg|assess|rat|mark)ing (?:this|it|the (?:answer|response|text))\b|\breading this (?:for|to|and|in order to) (?:grad|scor|evaluat|judg|assess)|\b(?:person|human|model|system|ai|whoever) (?:\w+ ){0,3}?(?:grades|scores|evaluates|judges|grading|scoring|evaluating|judging) this\b";
    /// Mentions of instructions that only a judge has received.
    JUDGES_PROMPT = r"\b(?:rubric|criteria|standards|instructions|guidelines|prompt) (?:that )?you (?:were|have been|are) (?:given|told|shown)\b|\byour (?:rubric|scoring|grading|evaluation|judg(?:ing|e?ment)|system prompt|instructions (?:say|state|require))\b";
    /// Scores and favours that graders are asked for.
    REWARD = format!(r"\b(?:{TOP_WORDS}|(?:a|an|with|the number|is|say|output|print|write) (?:5|five)\b|(?:5|five) (?:points?|is|would|out)\b|reward|(?:verdict|score|rating|grade) ?(?:is|:) ?(?:5|five)|top(?:-| )scoring|top (?:mark|score|grade|rating)|high(?:est)?(?:-| )scor\w+)");
    /// A plea for a grader's kindness.
    KINDNESS = r"\b(?:please|be|being|you) (?:\w+ ){0,3}?(?:generous|lenient|kind|favou?rable|merciful) (?:\w+ ){0,4}?(?:score|scoring|grade|grading|rating|marks?|marking|evaluation|judge?ment)\b";
    /// The words of a grader.
    GRADERS_WORD = format!(r"\b{GRADER}['’]?s?['’]? (?:final )?(?:verdict|score|rating|decision|conclusion|note|grade|feedback|assessment)\b");
    /// Words for grading in text that addresses a grader.
    GRADING = r"\b(?:scor(?:e|es|ed|ing)|grad(?:e|ed|ing)|rate|rated|rating|marks|5 ?/ ?5|out of 5|highest|perfect)\b";
    /// An order to give the best score.
    ORDER = format!(r"(?:^|[.!:,(] ?|\b(?:please|must|should|you|and|to|then|just|simply|always|only) )(?:output|return|print|write|answer|reply|respond|give|award|assign|grant|set|choose|select|pick|enter|put|state|declare|conclude|end) [^.]{{0,40}}?(?:\b(?:a |the )?(?:score|grade|rating|mark) ?(?:of|to|at|as|:) ?(?:an? )?(?:5|five)\b|\b{TOP_WORDS})|\bset (?:the )?(?:score|grade|rating) ?(?:=|to|:|as) ?(?:5|five)\b|\b(?:answers|responses) (?:\w+ ){{0,5}}?(?:automatically|always|must) (?:\w+ ){{0,3}}?{TOP_WORDS}");
    /// A score that is said to be the only one allowed.
    ONLY_SCORE = r"\bonly (?:\w+ )?(?:valid|acceptable|fair|correct|possible|right|allowed|permitted|appropriate) (?:score|grade|rating|mark|verdict)\b";
    /// Grading rules that are said to have changed.
    NEW_RULES = r"\b(?:new|updated|current|revised|changed|outdated|corrected|has been updated)\b[^.]{0,30}\b(?:rubrics?|grading criteria|scoring|grading|score rubrics?)\b|\b(?:rubrics?|grading criteria|scoring|grading)\b[^.]{0,20}\b(?:is|are|has been|have been|was|were) (?:now )?(?:updated|outdated|changed|replaced|revised|corrected|superseded)\b";
    /// The score given by such rules.
    NEW_SCORE = r"\b(?:5|five)\b";
}

/// The parts of score claims in another language.
pub(super) struct Language {
    /// Words for a score.
    pub(super) score: Regex,
    /// Words for an answer, all of it, or its merit.
    pub(super) about: Regex,
}

/// Languages in which claims are found, given by the beginnings of words.
const LANGUAGES: [(&str, &str); 13] = [
    (
        "bewert|gesamtbewertung|gesamtnote|note|punktzahl|punkte|hochstpunktzahl|bestnote|volle punktzahl",
        "antwort|gesamt|insgesamt|verdien|vergib|gib|gutachter",
    ),
    ("note|points", "reponse|globale|finale|maximale|merite|attribue|donne"),
    ("puntuacion|calificacion|nota|puntos|puntaje", "respuesta|final|total|global|merece|maxima|otorga|asigna"),
    ("pontuacao|nota|pontos|avaliacao", "resposta|final|total|merece|maxima|atribua|de"),
    ("punteggio|voto|valutazione|punti", "risposta|finale|complessiv|merita|massimo|assegna"),
    ("cijfer|beoordeling|punten", "antwoord|totaal|eind|verdient|geef"),
    ("ocena|punkt|wynik", "odpowied|koncowa|ogolna|zasluguje|maksymaln"),
    ("оценк|балл", "ответ|итогов|общая|заслуживает|поставь|максимальн"),
    ("评分|得分|总分|分数|评级|满分", "回答|答案|回复|总|最终|应得|给"),
    ("スコア|評価|点数|満点", "回答|総合|最終|答え"),
    ("점수|총점|평점|만점", "답변|응답|최종|총"),
    ("درجة|الدرجة|تقييم", "الإجابة|الجواب|النهائية|الإجمالية"),
    ("puan|not", "cevap|yanit|toplam|genel|hak"),
];
/// The best score in other languages.
const TOP_ELSEWHERE: &str = "hochstpunktzahl|bestnote|volle punktzahl|hochste punktzahl|note maximale|meilleure note|maxima \
    calificacion|calificacion maxima|maxima puntuacion|puntuacion maxima|nota maxima|maxima nota|pontuacao maxima|punteggio \
    massimo|massimo punteggio|hoogste score|maximale score|maksymalna ocen|высший балл|высшего балла|максимальный балл|满分|満点|만점";
/// Orders to ignore, in other languages.
const IGNORE_ELSEWHERE: (&str, &str) = (
    "ignor|oublie|missacht|vergiss|olvid|esque|dimentic|игнорир|забуд|忽略|无视|無視",
    "instruc|criter|anweis|kriteri|rubri|istruz|инструкц|указан|критери|指令|说明|指示|标准|基準",
);

pub(super) static ELSEWHERE: LazyLock<Vec<Language>> = LazyLock::new(|| {
    let language = |(score, about): &(&str, &str)| Language { score: beginnings(score), about: beginnings(about) };
    LANGUAGES.iter().map(language).collect()
});
pub(super) static FIVE_ELSEWHERE: LazyLock<Regex> = LazyLock::new(|| {
    let words = beginnings(TOP_ELSEWHERE);
    expression(format!(r"{words}|(?:^|[^\w.,/\-]|[^\x00-\x7f])5(?:$|[^\w.,%\-]|[.,](?:\D|$)|[^\x00-\x7f])"))
});
pub(super) static IGNORE_VERB_ELSEWHERE: LazyLock<Regex> = LazyLock::new(|| beginnings(IGNORE_ELSEWHERE.0));
pub(super) static IGNORE_NOUN_ELSEWHERE: LazyLock<Regex> = LazyLock::new(|| beginnings(IGNORE_ELSEWHERE.1));

/// Matches any of the words at the beginning of a word; in scripts without spaces, anywhere.
fn beginnings(words: &str) -> Regex {
    let word = |word: &str| {
        let has_blanks = word.chars().all(|character| u32::from(character) < 0x1100);
        let (opening, escaped) = (if has_blanks { r"\b" } else { "" }, regex::escape(&folded(word)));
        format!("{opening}{escaped}")
    };
    let words: Vec<String> = words.split('|').map(|text| word(text.trim())).collect();
    expression(format!("(?:{})", words.join("|")))
}
