// What an inequality costs kube-scheduler: NodeAffinity's Filter asks it of one node after another.
// Run by tests/bench/bench_upstream_inequality.py, which chooses the versions of the modules.

package inequality

import (
	"fmt"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

const nodeCount = 1000

// As nodes have them: well-known labels, and one number.
func nodes() []*v1.Node {
	found := make([]*v1.Node, nodeCount)
	for i := range found {
		name := fmt.Sprintf("node-%06d", i)
		found[i] = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
			"topology.kubernetes.io/zone": fmt.Sprintf("zone-%d", i%3), "node.kubernetes.io/instance-type": "c7",
			"example.com/memory-mib": strconv.Itoa(100_000 + 37*i),
		}}}
	}
	return found
}

func affinity(requirements ...v1.NodeSelectorRequirement) *v1.Pod {
	terms := []v1.NodeSelectorTerm{{MatchExpressions: requirements}}
	return &v1.Pod{Spec: v1.PodSpec{Affinity: &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: terms},
	}}}}
}

func memory(op v1.NodeSelectorOperator, value string) v1.NodeSelectorRequirement {
	return v1.NodeSelectorRequirement{Key: "example.com/memory-mib", Operator: op, Values: []string{value}}
}

var matched int

func matchAll(b *testing.B, pod *v1.Pod) {
	all, required := nodes(), nodeaffinity.GetRequiredNodeAffinity(pod)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		if ok, _ := required.Match(all[i%nodeCount]); ok {
			matched++
		}
	}
}

func BenchmarkAffinityGt(b *testing.B) { matchAll(b, affinity(memory(v1.NodeSelectorOpGt, "118000"))) }
func BenchmarkAffinityIn(b *testing.B) { matchAll(b, affinity(memory(v1.NodeSelectorOpIn, "118500"))) }
func BenchmarkAffinityGtLt(b *testing.B) {
	matchAll(b, affinity(memory(v1.NodeSelectorOpGt, "110000"), memory(v1.NodeSelectorOpLt, "130000")))
}

func BenchmarkAffinityName(b *testing.B) {
	terms := []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{
		{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{"node-000500"}},
	}}}
	matchAll(b, &v1.Pod{Spec: v1.PodSpec{Affinity: &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: terms},
	}}}})
}

// Once for a pod: Values are parsed, too.
func BenchmarkAffinityParse(b *testing.B) {
	pod := affinity(memory(v1.NodeSelectorOpGt, "118000"))
	b.ReportAllocs()
	for i := 0; i < b.N; i++ {
		nodeaffinity.GetRequiredNodeAffinity(pod)
	}
}

func requirementAll(b *testing.B, op selection.Operator, value string) {
	requirement, err := labels.NewRequirement("example.com/memory-mib", op, []string{value})
	if err != nil {
		b.Fatal(err)
	}
	sets := make([]labels.Set, nodeCount)
	for i, node := range nodes() {
		sets[i] = node.Labels
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		if requirement.Matches(sets[i%nodeCount]) {
			matched++
		}
	}
}

func BenchmarkRequirementGt(b *testing.B) { requirementAll(b, selection.GreaterThan, "118000") }
func BenchmarkRequirementIn(b *testing.B) { requirementAll(b, selection.In, "118500") }
func BenchmarkRequirementExists(b *testing.B) {
	requirement, _ := labels.NewRequirement("example.com/memory-mib", selection.Exists, nil)
	all := nodes()
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		if requirement.Matches(labels.Set(all[i%nodeCount].Labels)) {
			matched++
		}
	}
}

// What the fastest way could cost: one comparison of numbers that somebody keeps in a column.
func BenchmarkColumn(b *testing.B) {
	column := make([]int64, nodeCount)
	for i := range column {
		column[i] = int64(100_000 + 37*i)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		if column[i%nodeCount] > 118_000 {
			matched++
		}
	}
}
