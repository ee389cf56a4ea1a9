//! The tests' program of rskafka: admin, produce, and read a partition from its begin to its end.
//! Called as `rust STEP JSON`, it prints one line of JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use rskafka::client::ClientBuilder;
use rskafka::client::error::{Error, ProtocolError};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::record::Record;
use serde_json::{Value, json};

/// A batch or two in each answer, so that reading goes on after each batch.
const ANSWER_BYTES: i32 = 500;

type Failure = Box<dyn std::error::Error>;

fn codec(name: &str) -> Compression {
    match name {
        "gzip" => Compression::Gzip,
        "lz4" => Compression::Lz4,
        "snappy" => Compression::Snappy,
        _ => Compression::NoCompression,
    }
}

fn record(number: i64) -> Record {
    Record {
        key: Some(format!("key-{}", number % 20).into_bytes()),
        value: Some(format!("value-{number}").into_bytes()),
        headers: BTreeMap::from([("origin".to_owned(), b"quire test".to_vec())]),
        timestamp: chrono::DateTime::from_timestamp_millis(1_700_000_000_000 + number).unwrap(),
    }
}

/// Returns the records of a partition, those of a compacted topic with their gaps.
async fn read(partition: &PartitionClient, number: i32) -> Result<Vec<Value>, Failure> {
    let end = partition.get_offset(OffsetAt::Latest).await?;
    let mut next = partition.get_offset(OffsetAt::Earliest).await?;
    let mut found = Vec::new();
    while next < end {
        let (records, _) = partition.fetch_records(next, 1..ANSWER_BYTES, 1_000).await?;
        // rskafka leaves out what lies before the asked offset, and says nothing of batches: an
        // answer is empty, too, where the batch's last records were compacted away.
        next = records.last().map_or(next, |last| last.offset) + 1;
        found.extend(records.iter().map(|one| {
            let text = |bytes: &Option<Vec<u8>>| {
                bytes.as_ref().map(|b| String::from_utf8_lossy(b).into_owned())
            };
            let (key, value) = (text(&one.record.key), text(&one.record.value));
            json!({"partition": number, "offset": one.offset, "key": key, "value": value})
        }));
    }
    Ok(found)
}

async fn step(name: &str, s: &Value) -> Result<Value, Failure> {
    let text = |field: &str| s[field].as_str().unwrap_or_default().to_owned();
    let number = |field: &str| s[field].as_i64().unwrap_or_default();
    let seeds = text("brokers").split(',').map(str::to_owned).collect();
    let client = ClientBuilder::new(seeds).build().await?;
    let topic = text("topic");
    let partition = |p: i64| client.partition_client(topic.clone(), p as i32, UnknownTopicHandling::Retry);
    match name {
        "admin" => {
            let controller = client.controller_client()?;
            controller.create_topic(topic.clone(), number("partitions") as i32, 1, 5_000).await?;
            let again = controller.create_topic(topic.clone(), 1, 1, 5_000).await;
            let exists = matches!(
                &again,
                Err(Error::ServerError { protocol_error: ProtocolError::TopicAlreadyExists, .. })
            );
            // Any broker is asked, and the others hear of a new topic a moment later.
            let mut found = None;
            for _ in 0..300 {
                let topics = client.list_topics().await?;
                found = topics.iter().find(|one| one.name == topic).map(|one| one.partitions.len());
                if found.is_some() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            controller.delete_topic(topic.clone(), 5_000).await?;
            Ok(json!({"partitions": found, "exists": exists}))
        }
        "produce" => {
            let codec = codec(&text("codec"));
            let records = (number("first")..number("end")).map(record).collect();
            Ok(json!(partition(0).await?.produce(records, codec).await?))
        }
        "records" => {
            let mut found = Vec::new();
            for p in 0..number("partitions") {
                found.extend(read(&partition(p).await?, p as i32).await?);
            }
            Ok(Value::from(found))
        }
        _ => Err(format!("no such step: {name}").into()),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let settings = serde_json::from_str(&arguments[2])?;
    println!("{}", step(&arguments[1], &settings).await?);
    Ok(())
}
