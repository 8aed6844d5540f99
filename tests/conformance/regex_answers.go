// Go's own reading of regular expressions: the judge of minikube_py/cel/regex.py, and the source of its tables.
//
//	go run regex_answers.go < data/regex_answers.json  for each pattern its error, or where it is in each of the texts
//	go run regex_answers.go tables                     minikube_py/cel/unicode.json
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

type recorded struct {
	Texts   []string         `json:"texts"`
	Answers []map[string]any `json:"answers"`
}

func main() {
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "")
	var out any
	if len(os.Args) > 1 && os.Args[1] == "tables" {
		out = tables()
	} else {
		var in recorded
		if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
			panic(err)
		}
		for _, each := range in.Answers {
			answer(each, in.Texts)
		}
		out = in
	}
	if err := encoder.Encode(out); err != nil {
		panic(err)
	}
}

func answer(each map[string]any, texts []string) {
	delete(each, "error")
	delete(each, "found")
	found := []any{}
	re, err := regexp.Compile(each["pattern"].(string))
	if err != nil {
		each["error"] = err.Error()
		return
	}
	for _, text := range texts {
		at := re.FindStringIndex(text)
		if at == nil {
			found = append(found, nil)
			continue
		}
		found = append(found, []int{utf8.RuneCountInString(text[:at[0]]), utf8.RuneCountInString(text[:at[1]])})
	}
	each["found"] = found
}

func canonical(name string) string {
	name = strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(name))
	return strings.ToUpper(name[:1]) + name[1:]
}

func tables() map[string]any {
	classes := map[string]string{}
	for name, table := range unicode.Categories {
		classes[canonical(name)] = written(table)
	}
	for name, table := range unicode.Scripts {
		// Go looks scripts up by their names as Unicode writes them: those of two words are never found.
		if canonical(name) == name {
			classes[name] = written(table)
		}
	}
	aliases := map[string]string{}
	for name, of := range unicode.CategoryAliases {
		aliases[canonical(name)] = canonical(of)
	}
	orbits, seen := []string{}, map[rune]bool{}
	for c := rune(0); c <= unicode.MaxRune; c++ {
		if seen[c] || unicode.SimpleFold(c) == c {
			continue
		}
		orbit := []rune{c}
		for next := unicode.SimpleFold(c); next != c; next = unicode.SimpleFold(next) {
			orbit = append(orbit, next)
		}
		for _, each := range orbit {
			seen[each] = true
		}
		orbits = append(orbits, string(orbit))
	}
	return map[string]any{"version": unicode.Version, "classes": classes, "aliases": aliases, "orbits": strings.Join(orbits, " ")}
}

func written(table *unicode.RangeTable) string {
	parts := []string{}
	low, high := rune(-2), rune(-2)
	put := func() {
		if low == high && low >= 0 {
			parts = append(parts, fmt.Sprintf("%x", low))
		} else if low >= 0 {
			parts = append(parts, fmt.Sprintf("%x-%x", low, high))
		}
	}
	add := func(from, to, stride rune) {
		for c := from; c <= to; c += stride {
			if c != high+1 {
				put()
				low = c
			}
			high = c
		}
	}
	for _, each := range table.R16 {
		add(rune(each.Lo), rune(each.Hi), rune(each.Stride))
	}
	for _, each := range table.R32 {
		add(rune(each.Lo), rune(each.Hi), rune(each.Stride))
	}
	put()
	return strings.Join(parts, " ")
}
