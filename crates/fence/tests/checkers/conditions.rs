//! The conditions for DynamoDB and object stores, against small models of them that do what they
//! document: one write on one condition is one step.

use std::collections::{HashMap, HashSet};

use holdfast_fence::dynamodb::{Condition, ConditionFailure, condition};
use holdfast_fence::object_store::{Found, PlanError, Precondition, Put, plan_put};
use holdfast_fence::{Claim, Refusal};

use crate::meeting::{Dice, MEETINGS, Write, claim, judge, meetings, mixed};

/// An item: its attributes, numbers as decimals.
type Item = HashMap<String, String>;

/// Reads a condition expression as DynamoDB's grammar has it: `OR` binds less than `AND`.
struct Expression<'a> {
    words: Vec<String>,
    at: usize,
    condition: &'a Condition,
    item: Option<&'a Item>,
}

impl<'a> Expression<'a> {
    fn holds(condition: &'a Condition, item: Option<&'a Item>) -> bool {
        let spaced = condition.expression.replace('(', " ( ").replace(')', " ) ");
        let words = spaced.split_whitespace().map(str::to_owned).collect();
        let mut expression = Expression { words, at: 0, condition, item };
        let holds = expression.any();
        assert_eq!(expression.at, expression.words.len(), "{}", condition.expression);
        holds
    }

    fn next(&mut self) -> String {
        self.at += 1;
        self.words[self.at - 1].clone()
    }

    fn is_next(&self, word: &str) -> bool {
        self.words.get(self.at).is_some_and(|next| next == word)
    }

    fn any(&mut self) -> bool {
        let mut holds = self.all();
        while self.is_next("OR") {
            self.next();
            holds |= self.all();
        }
        holds
    }

    fn all(&mut self) -> bool {
        let mut holds = self.one();
        while self.is_next("AND") {
            self.next();
            holds &= self.one();
        }
        holds
    }

    fn one(&mut self) -> bool {
        let word = self.next();
        match word.as_str() {
            "(" => {
                let holds = self.any();
                assert_eq!(self.next(), ")");
                holds
            }
            "attribute_exists" | "attribute_not_exists" => {
                assert_eq!(self.next(), "(");
                let name = self.next();
                assert_eq!(self.next(), ")");
                self.attribute(&name).is_some() == (word == "attribute_exists")
            }
            name => {
                let attribute = self.attribute(name).map(|number| number.parse::<u128>().unwrap());
                assert_eq!(self.next(), "<=");
                let value = self.next();
                let value =
                    &self.condition.values.iter().find(|(name, _)| *name == value).unwrap().1;
                // What is compared with an attribute that is not there is false.
                attribute.is_some_and(|attribute| attribute <= value.parse().unwrap())
            }
        }
    }

    fn attribute(&self, placeholder: &str) -> Option<&'a String> {
        let names = &self.condition.names;
        let name = &names.iter().find(|(name, _)| name == placeholder).unwrap().1;
        self.item?.get(name)
    }
}

/// Puts the item on the condition, as `PutItem` does.
fn put(table: &mut HashMap<String, Item>, condition: &Condition, key: &str, value: i64) -> bool {
    if !Expression::holds(condition, table.get(key)) {
        return false;
    }
    let (attribute, mark) = condition.mark.clone();
    let key_attribute = ("id".to_owned(), key.to_owned());
    let item = [key_attribute, ("value".to_owned(), value.to_string()), (attribute, mark)];
    table.insert(key.to_owned(), item.into());
    true
}

#[test]
fn conditional_puts_of_dynamodb_never_go_back() {
    let mut dice = Dice(23);
    let meetings = meetings("item", MEETINGS, &mut dice);
    let mut table = HashMap::new();
    let mut histories: HashMap<String, Vec<Write>> = HashMap::new();
    for (name, write) in mixed(&meetings, &mut dice) {
        let condition = condition(&claim(&name, write.token), "last_token");
        let old: Option<Item> = table.get(&name).cloned();
        if put(&mut table, &condition, &name, write.value) {
            histories.entry(name).or_default().push(write);
        } else {
            let mark = old.as_ref().map(|item| item.get("last_token").map(String::as_str));
            let why = condition.why_failed(mark);
            assert!(matches!(why, ConditionFailure::Refused(Refusal::Stale { .. })), "{why}");
        }
    }
    for (name, history) in histories {
        let stored = table[&name]["value"].parse().unwrap();
        judge(&history, Some(stored), &HashSet::new()).unwrap();
    }
}

#[test]
fn a_failed_condition_tells_stale_from_missing_and_from_others() {
    let (low, high) = (claim("a", 6), claim("a", 7));
    let mut table = HashMap::new();
    let must_exist = condition(&high, "last_token").and_exists("id");
    assert!(!put(&mut table, &must_exist, "a", 1));
    assert_eq!(must_exist.why_failed(None), ConditionFailure::Missing);
    assert!(put(&mut table, &condition(&high, "last_token"), "a", 1));
    assert!(put(&mut table, &must_exist, "a", 2));
    assert!(!put(&mut table, &condition(&low, "last_token").and_exists("id"), "a", 3));
    let why = condition(&low, "last_token").why_failed(Some(Some("7")));
    assert!(matches!(why, ConditionFailure::Refused(Refusal::Stale { highest: 7, .. })));
    assert_eq!(must_exist.why_failed(Some(Some("7"))), ConditionFailure::OtherCondition);
    assert_eq!(must_exist.why_failed(Some(None)), ConditionFailure::OtherCondition);
    assert!(matches!(must_exist.why_failed(Some(Some("x"))), ConditionFailure::InvalidMark(_)));
    assert_eq!(must_exist.set_clause(), "#holdfast_token = :holdfast_token");
}

/// An object as a store keeps it, with an ETag that no other has.
#[derive(Clone)]
struct Object {
    etag: String,
    mark: String,
    value: i64,
}

/// A writer between its steps.
enum Step {
    Look,
    Put(Put),
}

struct Bucket {
    object: Option<Object>,
    puts: u64,
    history: Vec<Write>,
}

impl Bucket {
    /// 412 is false.
    fn put(&mut self, put: &Put, write: Write) -> bool {
        let etag = self.object.as_ref().map(|object| object.etag.as_str());
        let holds = match &put.precondition {
            Precondition::IfMatch(wanted) => etag == Some(wanted),
            Precondition::IfNoneMatchAny => etag.is_none(),
        };
        if holds {
            self.puts += 1;
            let (etag, mark) = (format!("\"{}\"", self.puts), put.metadata.1.clone());
            self.object = Some(Object { etag, mark, value: write.value });
            self.history.push(write);
        }
        holds
    }

    fn plan(&self, claim: &Claim) -> Result<Put, PlanError> {
        let found = self.object.as_ref();
        plan_put(claim, found.map(|found| Found { etag: &found.etag, mark: Some(&found.mark) }))
    }
}

#[test]
fn conditional_puts_of_object_stores_never_go_back() {
    let mut dice = Dice(29);
    let (mut refused, mut begun_anew) = (0, 0);
    for meeting in meetings("object", MEETINGS, &mut dice) {
        let mut bucket = Bucket { object: None, puts: 0, history: Vec::new() };
        let mut acknowledged = HashSet::new();
        let mut writers: Vec<_> = meeting.writes.iter().map(|write| (*write, Step::Look)).collect();
        while !writers.is_empty() {
            let turn = dice.roll(writers.len() as u64) as usize;
            let (write, step) = writers.swap_remove(turn);
            let next = match step {
                Step::Look => match bucket.plan(&claim(&meeting.resource, write.token)) {
                    Ok(put) => Some(Step::Put(put)),
                    Err(error) => {
                        assert!(matches!(error, PlanError::Refused(Refusal::Stale { .. })));
                        refused += 1;
                        None
                    }
                },
                Step::Put(put) if bucket.put(&put, write) => {
                    acknowledged.insert(write);
                    None
                }
                Step::Put(_) => {
                    begun_anew += 1;
                    Some(Step::Look)
                }
            };
            writers.extend(next.map(|step| (write, step)));
        }
        let stored = bucket.object.map(|object| object.value);
        judge(&bucket.history, stored, &acknowledged).unwrap();
    }
    assert!(refused > 0 && begun_anew > 0, "they never met: {refused}, {begun_anew}");
}

#[test]
fn an_object_without_a_mark_passes_and_one_with_a_broken_mark_does_not() {
    let claim = claim("a", 7);
    let put = plan_put(&claim, Some(Found { etag: "\"x\"", mark: None })).unwrap();
    assert_eq!(put.precondition.header(), ("if-match", "\"x\""));
    assert_eq!(put.metadata, ("holdfast-token", "7".to_owned()));
    let none = plan_put(&claim, None).unwrap();
    assert_eq!(none.precondition.header(), ("if-none-match", "*"));
    let broken = plan_put(&claim, Some(Found { etag: "\"x\"", mark: Some("seven") })).unwrap_err();
    assert!(broken.to_string().contains("mend it to the highest token"), "{broken}");
}
