// Reads JSON from stdin, writes what KWOK 0.8 makes of it: the values of jq expressions, the text and the JSON of
// templates, and for an object and files of stages which stages match, with what weight and delay, and what they do.
// The judge of minikube_py/stages. Built with sigs.k8s.io/kwok v0.8.0.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/utils/expression"
	"sigs.k8s.io/kwok/pkg/utils/gotpl"
	"sigs.k8s.io/kwok/pkg/utils/lifecycle"
)

type input struct {
	Queries []struct {
		Query string `json:"query"`
		Data  any    `json:"data"`
	} `json:"queries"`
	Templates []struct {
		Template string `json:"template"`
		Data     any    `json:"data"`
	} `json:"templates"`
	Lives []struct {
		Files   []string          `json:"files"`
		Objects []json.RawMessage `json:"objects"`
	} `json:"lives"`
}

var now = time.Date(2006, 1, 2, 15, 4, 5, 0, time.UTC)

func said(name string) func() string { return func() string { return "<" + name + ">" } }

var functions = gotpl.FuncMap{
	"Now": said("Now"), "StartTime": said("StartTime"), "Version": said("Version"), "NodeIP": said("NodeIP"),
	"NodeName": said("NodeName"), "PodIP": said("PodIP"), "NodePort": func() int { return 10250 },
	"NodeIPWith":  func(node string) string { return "<NodeIPWith " + node + ">" },
	"NodeIPsWith": func(node string) []string { return []string{"<NodeIPsWith " + node + ">"} },
	"PodIPWith": func(node string, host bool, uid, name, namespace string) (string, error) {
		return fmt.Sprintf("<PodIPWith %s %v %s %s %s>", node, host, uid, name, namespace), nil
	},
	"PodIPsWith": func(node string, host bool, uid, name, namespace string) ([]string, error) {
		return []string{fmt.Sprintf("<PodIPsWith %s %v %s %s %s>", node, host, uid, name, namespace)}, nil
	},
}

func query(text string, data any) any {
	q, err := expression.NewQuery(text)
	if err != nil {
		return map[string]any{"refused": err.Error()}
	}
	values, err := q.Execute(context.Background(), data)
	if err != nil || values == nil {
		return map[string]any{"values": nil}
	}
	types := []string{}
	for _, value := range values {
		types = append(types, fmt.Sprintf("%T", value))
	}
	return map[string]any{"values": values, "types": types}
}

func render(text string, data any) any {
	renderer := gotpl.NewRenderer(functions)
	out := map[string]any{}
	if found, err := renderer.ToText(text, data); err != nil {
		out["refused"] = err.Error()
	} else {
		out["text"] = string(found)
	}
	if found, err := renderer.ToJSON(text, data); err == nil {
		out["json"] = json.RawMessage(found)
	}
	return out
}

type object interface{ metav1.Object }

func decode(raw json.RawMessage) (object, any, string) {
	found := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, &found.Object); err != nil {
		panic(err)
	}
	switch found.GetKind() {
	case "Pod":
		pod := &corev1.Pod{}
		if err := json.Unmarshal(raw, pod); err != nil {
			panic(err)
		}
		pod.TypeMeta = metav1.TypeMeta{}
		return pod, pod, "Pod"
	case "Node":
		node := &corev1.Node{}
		if err := json.Unmarshal(raw, node); err != nil {
			panic(err)
		}
		node.TypeMeta = metav1.TypeMeta{}
		return node, node, "Node"
	}
	return found, found, found.GetKind()
}

func stage(target object, data any, event *lifecycle.Event, each *lifecycle.Stage) any {
	ctx := context.Background()
	out := map[string]any{"stage": each.Name()}
	if delay, ok, err := each.DelayRangePossible(ctx, event, now); err != nil {
		out["delayError"] = err.Error()
	} else if ok {
		out["delay"] = delay
	}
	if weight, ok, err := each.Weight(ctx, event); err == nil && ok {
		out["weight"] = weight
	}
	steps := []any{}
	resource := data
	if u, ok := data.(*unstructured.Unstructured); ok {
		resource = u.Object
	}
	_, err := each.DoSteps(0, target.GetFinalizers(), resource, gotpl.NewRenderer(functions),
		func(e *internalversion.StageEvent) error {
			steps = append(steps, map[string]any{"event": []string{e.Type, e.Reason, e.Message}})
			return nil
		},
		func() error { steps = append(steps, map[string]any{"delete": true}); return nil },
		func(p *lifecycle.Patch) error {
			step := map[string]any{"patch": json.RawMessage(p.Data), "type": p.Type, "subresource": p.Subresource}
			if p.Impersonation != nil {
				step["as"] = p.Impersonation.Username
			}
			steps = append(steps, step)
			return nil
		},
		func(a *lifecycle.Apply) error {
			step := map[string]any{"apply": json.RawMessage(a.Data), "type": a.Type, "subresource": a.Subresource}
			if a.Impersonation != nil {
				step["as"] = a.Impersonation.Username
			}
			steps = append(steps, step)
			return nil
		})
	if err != nil {
		out["failed"] = err.Error()
	}
	out["steps"] = steps
	out["immediate"] = each.ImmediateNextStage()
	return out
}

func live(files []string, raws []json.RawMessage) any {
	loaded, err := config.Load(context.Background(), files...)
	if err != nil {
		return map[string]any{"refused": err.Error()}
	}
	stages := config.FilterWithType[*internalversion.Stage](loaded)
	all := []any{}
	for _, raw := range raws {
		target, data, kind := decode(raw)
		mine := []*internalversion.Stage{}
		for _, each := range stages {
			if each.Spec.ResourceRef.Kind == kind {
				mine = append(mine, each)
			}
		}
		lives, err := lifecycle.NewLifecycle(mine)
		if err != nil {
			panic(err)
		}
		event := &lifecycle.Event{Labels: target.GetLabels(), Annotations: target.GetAnnotations(), Data: data}
		possible, err := lives.ListAllPossible(context.Background(), event)
		if err != nil {
			all = append(all, map[string]any{"error": err.Error()})
			continue
		}
		found := []any{}
		for _, each := range possible {
			found = append(found, stage(target, data, event, each))
		}
		all = append(all, found)
	}
	return all
}

func main() {
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	var in input
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		panic(err)
	}
	queries, templates, lives := []any{}, []any{}, []any{}
	for _, each := range in.Queries {
		queries = append(queries, query(each.Query, each.Data))
	}
	for _, each := range in.Templates {
		templates = append(templates, render(each.Template, each.Data))
	}
	for _, each := range in.Lives {
		lives = append(lives, live(each.Files, each.Objects))
	}
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	if err := out.Encode(map[string]any{"queries": queries, "templates": templates, "lives": lives}); err != nil {
		panic(err)
	}
}
