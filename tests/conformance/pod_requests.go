// Reads pods as a JSON list, writes what each asks of its node as kube-scheduler 1.36 counts it: the judge of
// fields/resource_requests.py. Built with k8s.io/component-helpers v0.36.2; data/pod_requests.json holds its answers to
// drawn pods.
package main

import (
	"encoding/json"
	"os"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

func main() {
	var pods []v1.Pod
	if err := json.NewDecoder(os.Stdin).Decode(&pods); err != nil {
		panic(err)
	}
	out := []map[string]string{}
	for i := range pods {
		r := resourcehelper.PodRequests(&pods[i], resourcehelper.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true})
		m := map[string]string{}
		for k, q := range r {
			m[string(k)] = q.String()
		}
		out = append(out, m)
	}
	json.NewEncoder(os.Stdout).Encode(out)
}
