// What a list with a selector costs kube-apiserver, object by object: decoding where it reads etcd, and the selector.

package inequality

import (
	"fmt"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	api "k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	"k8s.io/kubernetes/pkg/registry/core/node"
)

const nodeCount = 1000

var matched int

// Of about the size that kwok's nodes have in etcd.
func external(i int) *v1.Node {
	name := fmt.Sprintf("node-%06d", i)
	amounts := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewMilliQuantity(int64(32_000-i), resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(int64(128)<<30, resource.BinarySI),
		v1.ResourcePods:   *resource.NewQuantity(110, resource.DecimalSI),
	}
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "00000000-0000-4000-8000-000000000000", Labels: map[string]string{
			"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
			"topology.kubernetes.io/zone": fmt.Sprintf("zone-%d", i%3), "example.com/memory-mib": strconv.Itoa(100_000 + 37*i),
		}},
		Status: v1.NodeStatus{Capacity: amounts, Allocatable: amounts, Conditions: []v1.NodeCondition{
			{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady"},
		}},
	}
}

func codec() runtime.Codec {
	serializer := protobuf.NewSerializer(legacyscheme.Scheme, legacyscheme.Scheme)
	return legacyscheme.Codecs.CodecForVersions(serializer, serializer, v1.SchemeGroupVersion, api.SchemeGroupVersion)
}

func stored(b *testing.B) [][]byte {
	found, codec := make([][]byte, nodeCount), codec()
	for i := range found {
		data, err := runtime.Encode(codec, external(i))
		if err != nil {
			b.Fatal(err)
		}
		found[i] = data
	}
	return found
}

func internal(b *testing.B) []runtime.Object {
	found, codec := make([]runtime.Object, nodeCount), codec()
	for i, data := range stored(b) {
		object, err := runtime.Decode(codec, data)
		if err != nil {
			b.Fatal(err)
		}
		found[i] = object
	}
	return found
}

// DecodeListItem of storage/etcd3, without the transformer: what a row costs that is read from etcd.
func BenchmarkDecodeNode(b *testing.B) {
	all, codec := stored(b), codec()
	b.ReportMetric(float64(len(all[0])), "bytes")
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		if _, err := runtime.Decode(codec, all[i%nodeCount]); err != nil {
			b.Fatal(err)
		}
	}
}

// The fields of a node that a selector can name; a map is made for each object.
func BenchmarkNodeAttrs(b *testing.B) {
	all := internal(b)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		if _, _, err := node.GetAttrs(all[i%nodeCount]); err != nil {
			b.Fatal(err)
		}
	}
}

func selectAll(b *testing.B, label labels.Selector, field fields.Selector) {
	all, predicate := internal(b), node.MatchNode(label, field)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		ok, err := predicate.Matches(all[i%nodeCount])
		if err != nil {
			b.Fatal(err)
		}
		if ok {
			matched++
		}
	}
}

func BenchmarkFieldSelector(b *testing.B) {
	selectAll(b, labels.Everything(), fields.ParseSelectorOrDie("spec.unschedulable=true"))
}

func BenchmarkLabelSelectorGt(b *testing.B) {
	label, err := labels.Parse("example.com/memory-mib>118000")
	if err != nil {
		b.Fatal(err)
	}
	selectAll(b, label, fields.Everything())
}

// From the watch cache: labels and fields were taken from the object when it was written.
func BenchmarkCachedFieldSelector(b *testing.B) {
	predicate := node.MatchNode(labels.Everything(), fields.ParseSelectorOrDie("spec.unschedulable=true"))
	var allLabels []labels.Set
	var allFields []fields.Set
	for _, object := range internal(b) {
		label, field, err := node.GetAttrs(object)
		if err != nil {
			b.Fatal(err)
		}
		allLabels, allFields = append(allLabels, label), append(allFields, field)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		if predicate.MatchesObjectAttributes(allLabels[i%nodeCount], allFields[i%nodeCount]) {
			matched++
		}
	}
}

// An inequality is no field selector at all.
func TestFieldSelectorHasNoInequality(t *testing.T) {
	for _, text := range []string{"free.cpu>4", "free.cpu>4000", "free.cpu<4"} {
		if selector, err := fields.ParseSelector(text); err == nil {
			t.Errorf("%s is a selector: %v", text, selector)
		}
	}
	// This one is: of a field called "free.cpu>", whose value is 4.
	selector, err := fields.ParseSelector("free.cpu>=4")
	if err != nil || selector.Requirements()[0].Field != "free.cpu>" {
		t.Errorf("%v, %v", selector, err)
	}
}
