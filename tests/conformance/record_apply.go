// Laid into structured-merge-diff's internal/fixture by record_apply.py, whose tests then write down what they do.
package fixture

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"sort"
	"strings"

	"go.yaml.in/yaml/v2"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

type fact map[string]interface{}

var (
	schemas   = map[*schema.Schema]int{}
	numbers   = map[string]int{}
	converted []fact
	steps     []fact
)

func write(kind string, content fact) {
	content["record"] = kind
	line, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}
	file, err := os.OpenFile(os.Getenv("APPLY_FACTS"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	fmt.Fprintln(file, string(line))
}

func typeOf(tv *typed.TypedValue) []interface{} {
	number, ok := schemas[tv.Schema()]
	if !ok {
		text, err := yaml.Marshal(tv.Schema().Types)
		if err != nil {
			panic(err)
		}
		if number, ok = numbers[string(text)]; !ok {
			number = len(numbers)
			numbers[string(text)] = number
			write("schema", fact{"number": number, "types": string(text)})
		}
		schemas[tv.Schema()] = number
	}
	return []interface{}{number, *tv.TypeRef().NamedType}
}

func plain(tv *typed.TypedValue) interface{} {
	return convertMapAnyToMapString(tv.AsValue().Unstructured())
}

type recordingConverter struct{ inner merge.Converter }

func (c recordingConverter) Convert(tv *typed.TypedValue, version fieldpath.APIVersion) (*typed.TypedValue, error) {
	found, err := c.inner.Convert(tv, version)
	if _, same := c.inner.(*dummyConverter); !same {
		entry := fact{"from": typeOf(tv), "object": plain(tv), "version": version}
		if err != nil {
			entry["missing"] = c.inner.IsMissingVersionError(err)
		} else {
			entry["to"], entry["result"] = typeOf(found), plain(found)
		}
		converted = append(converted, entry)
	}
	return found, err
}

func (c recordingConverter) IsMissingVersionError(err error) bool { return c.inner.IsMissingVersionError(err) }

func told(managers fieldpath.ManagedFields) fact {
	found := fact{}
	for name, set := range managers {
		text, err := set.Set().ToJSON()
		if err != nil {
			panic(err)
		}
		found[name] = []interface{}{string(set.APIVersion()), set.Applied(), string(text)}
	}
	return found
}

func (s *State) step(op string, tv *typed.TypedValue, version fieldpath.APIVersion, manager string, run func() error) error {
	entry := fact{"op": op, "object": plain(tv), "type": typeOf(tv), "version": version, "manager": manager}
	err := run()
	if conflicts, ok := err.(merge.Conflicts); ok {
		listed := []string{}
		for _, each := range conflicts {
			listed = append(listed, fmt.Sprintf("%s %s", each.Manager, each.Path))
		}
		sort.Strings(listed)
		entry["conflicts"] = listed
	} else if err != nil {
		entry["error"] = err.Error()
	}
	if s.Live != nil {
		entry["live"] = plain(s.Live)
	}
	entry["managers"] = told(s.Managers)
	steps = append(steps, entry)
	return err
}

func begin() { steps, converted = nil, nil }

func end(tc TestCase) {
	name := ""
	pcs := make([]uintptr, 30)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		frame, more := frames.Next()
		if at := strings.Index(strings.ToLower(frame.Function), "_test.test"); strings.Contains(frame.Function, "merge_test") && at >= 0 {
			name = fmt.Sprintf("%s:%d", strings.SplitN(frame.Function[at+6:], ".", 2)[0], frame.Line)
			break
		}
		if !more {
			break
		}
	}
	ignored := fact{}
	for version, set := range tc.IgnoredFields {
		text, _ := set.ToJSON()
		ignored[string(version)] = string(text)
	}
	write("case", fact{"name": name, "steps": steps, "ignored": ignored, "filtered": tc.IgnoreFilter != nil, "converted": converted})
}
