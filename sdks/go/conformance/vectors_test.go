package main

import (
	"bufio"
	"encoding/json"
	"os"
	"reflect"
	"testing"
)

func TestTheLibraryAnswersTheVectorsAsTheRustLibraryDoes(t *testing.T) {
	for _, kind := range []string{"lease", "fence", "endpoints", "slots"} {
		file, err := os.Open("../../../crates/conformance/vectors/" + kind + ".jsonl")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		count := 0
		for lines := bufio.NewScanner(file); lines.Scan(); count++ {
			var line struct {
				In  json.RawMessage `json:"in"`
				Out any             `json:"out"`
			}
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
				t.Fatal(err)
			}
			answer, err := answerVector(kind, line.In)
			if err != nil {
				t.Fatalf("%s: %v", line.In, err)
			}
			text, err := json.Marshal(answer)
			if err != nil {
				t.Fatal(err)
			}
			var told any
			if err := json.Unmarshal(text, &told); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(told, line.Out) {
				t.Fatalf("%s\nanswer   %s\nexpected %v", line.In, text, line.Out)
			}
		}
		if count < 100 {
			t.Fatalf("%d vectors of the kind %s", count, kind)
		}
	}
}
