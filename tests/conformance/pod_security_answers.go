// What upstream's policy says of pods: a JSON list of pods on standard input, and for each the detail by level and
// minor version on standard output.
package main

import (
	"encoding/json"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

func main() {
	var pods []corev1.Pod
	if err := json.NewDecoder(os.Stdin).Decode(&pods); err != nil {
		panic(err)
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		panic(err)
	}
	var answers []map[string][]string
	for _, pod := range pods {
		found := map[string][]string{}
		for _, level := range []api.Level{api.LevelBaseline, api.LevelRestricted} {
			for minor := 0; minor <= 36; minor++ {
				version := api.LevelVersion{Level: level, Version: api.MajorMinorVersion(1, minor)}
				result := policy.AggregateCheckResults(evaluator.EvaluatePod(version, &pod.ObjectMeta, &pod.Spec))
				found[string(level)] = append(found[string(level)], result.ForbiddenDetail())
			}
		}
		answers = append(answers, found)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		panic(err)
	}
}
