// Plays scripts, one JSON object a line, to upstream's own scheduler, whole: its event handlers, queue, cache, plugins and
// preemption, on client-go's fake API. Writes what comes of each step. Every script has a scheduler of its own, in a
// bubble of virtual time, so that a step ends when nothing is left to do. See judge_scheduler.py.
package answers

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	configscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// As many nodes as a search finds at least before it stops.
const sampled = 100

var (
	podsResource    = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	claimsResource  = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
	devicesResource = resourceapi.SchemeGroupVersion.WithResource("resourceclaims")
)

type step struct {
	Do      string          `json:"do"`
	Object  json.RawMessage `json:"object,omitempty"`
	Hold    bool            `json:"hold,omitempty"`
	Kind    string          `json:"kind,omitempty"`
	Key     string          `json:"key,omitempty"`
	Seconds float64         `json:"seconds,omitempty"`
}

type script struct {
	Name   string          `json:"name"`
	Config json.RawMessage `json:"config,omitempty"`
	Steps  []step          `json:"steps"`
}

// What came of one attempt to place a pod.
type attempt struct {
	Pod      string                      `json:"pod"`
	Node     string                      `json:"node,omitempty"`
	Feasible []string                    `json:"feasible,omitempty"`
	Scores   map[string]map[string]int64 `json:"scores,omitempty"`
	Codes    map[string]string           `json:"codes,omitempty"`
	Plugins  []string                    `json:"plugins,omitempty"`
	Message  string                      `json:"message,omitempty"`
}

type world struct {
	ctx      context.Context
	client   *fake.Clientset
	sched    *scheduler.Scheduler
	version  int
	attempts []*attempt
	feasible []fwk.NodeInfo
	held     map[string]bool
	events   []string
}

// --- a plugin that sees what the others said, and holds pods that are only tried ---------------------------------------

type witness struct {
	w      *world
	handle fwk.Handle
}

func (p *witness) Name() string { return "Witness" }

// Nothing wakes a pod that is held.
func (p *witness) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return nil, nil
}

func (p *witness) PreScore(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	p.w.feasible = nodes
	return fwk.NewStatus(fwk.Skip)
}

func (p *witness) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	found := &attempt{Pod: keyOf(pod), Node: nodeName, Feasible: []string{nodeName}}
	if len(p.w.feasible) >= sampled {
		// Which nodes were looked at is all that matters.
		found.Feasible = nil
		for _, each := range p.w.feasible {
			found.Feasible = append(found.Feasible, each.Node().Name)
		}
		sort.Strings(found.Feasible)
		found.Node = ""
	} else if len(p.w.feasible) > 1 {
		found.Feasible = nil
		found.Scores = map[string]map[string]int64{}
		scored, status := p.handle.RunScorePlugins(ctx, state, pod, p.w.feasible)
		if !status.IsSuccess() {
			return status
		}
		for _, each := range scored {
			found.Feasible = append(found.Feasible, each.Name)
			given := map[string]int64{}
			for _, score := range each.Scores {
				given[score.Name] = score.Score
			}
			found.Scores[each.Name] = given
		}
		sort.Strings(found.Feasible)
	}
	p.w.feasible = nil
	p.w.attempts = append(p.w.attempts, found)
	if p.w.held[keyOf(pod)] {
		return fwk.NewStatus(fwk.Unschedulable, "held")
	}
	return nil
}

func (p *witness) Unreserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) {}

// --- the API ------------------------------------------------------------------------------------------------------------

func keyOf(obj metav1.Object) string {
	if obj.GetNamespace() == "" {
		return obj.GetName()
	}
	return obj.GetNamespace() + "/" + obj.GetName()
}

func (w *world) stamped(obj runtime.Object) runtime.Object {
	w.version++
	copied := obj.DeepCopyObject()
	accessor, err := meta.Accessor(copied)
	check(err)
	accessor.SetResourceVersion(strconv.Itoa(w.version))
	return copied
}

// Updates and patches get a new version, as by an API server; a pod that is deleted while it runs is only marked.
func (w *world) serve() {
	tracker := w.client.Tracker()
	w.client.PrependReactor("update", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		obj := w.stamped(action.(clienttesting.UpdateAction).GetObject())
		return true, obj, tracker.Update(action.GetResource(), obj, action.GetNamespace())
	})
	w.client.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchAction)
		obj, err := tracker.Get(patch.GetResource(), patch.GetNamespace(), patch.GetName())
		if err != nil {
			return true, nil, err
		}
		before, err := json.Marshal(obj)
		check(err)
		after, err := strategicpatch.StrategicMergePatch(before, patch.GetPatch(), obj)
		check(err)
		changed := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(runtime.Object)
		check(json.Unmarshal(after, changed))
		changed = w.stamped(changed)
		return true, changed, tracker.Update(patch.GetResource(), changed, patch.GetNamespace())
	})
	w.client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		binding := action.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		obj, err := tracker.Get(podsResource, action.GetNamespace(), binding.Name)
		if err != nil {
			return true, nil, err
		}
		pod := obj.DeepCopyObject().(*v1.Pod)
		pod.Spec.NodeName = binding.Target.Name
		pod.Status.NominatedNodeName = ""
		return true, binding, tracker.Update(podsResource, w.stamped(pod), action.GetNamespace())
	})
	w.client.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		name := action.(clienttesting.DeleteAction).GetName()
		obj, err := tracker.Get(podsResource, action.GetNamespace(), name)
		if err != nil {
			return true, nil, err
		}
		pod := obj.DeepCopyObject().(*v1.Pod)
		if grace := pod.Spec.TerminationGracePeriodSeconds; grace != nil && *grace == 0 {
			return true, nil, tracker.Delete(podsResource, action.GetNamespace(), name)
		}
		now := metav1.Now()
		pod.DeletionTimestamp = &now
		return true, nil, tracker.Update(podsResource, w.stamped(pod), action.GetNamespace())
	})
}

func (w *world) put(raw json.RawMessage) runtime.Object {
	obj, kind, err := clientscheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	check(err)
	resource, _ := meta.UnsafeGuessKindToResource(*kind)
	obj = w.stamped(obj)
	accessor, _ := meta.Accessor(obj)
	if _, err := w.client.Tracker().Get(resource, accessor.GetNamespace(), accessor.GetName()); err == nil {
		check(w.client.Tracker().Update(resource, obj, accessor.GetNamespace()))
	} else {
		check(w.client.Tracker().Create(resource, obj, accessor.GetNamespace()))
	}
	return obj
}

// The resource of a path such as resource.k8s.io/v1/resourceclaims, and the namespace and name of a key.
func named(kind, key string) (schema.GroupVersionResource, string, string) {
	group, version, name := "", "v1", kind
	if parts := strings.Split(kind, "/"); len(parts) == 3 {
		group, version, name = parts[0], parts[1], parts[2]
	}
	namespace, own, found := strings.Cut(key, "/")
	if !found {
		namespace, own = "", key
	}
	return schema.GroupVersionResource{Group: group, Version: version, Resource: name}, namespace, own
}

func (w *world) merge(kind, key string, patch json.RawMessage) {
	resource, namespace, name := named(kind, key)
	obj, err := w.client.Tracker().Get(resource, namespace, name)
	if err != nil {
		return
	}
	before, err := json.Marshal(obj)
	check(err)
	var was, change map[string]any
	check(json.Unmarshal(before, &was))
	check(json.Unmarshal(patch, &change))
	after, err := json.Marshal(merged(was, change))
	check(err)
	changed := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(runtime.Object)
	check(json.Unmarshal(after, changed))
	check(w.client.Tracker().Update(resource, w.stamped(changed), namespace))
}

func merged(was, change map[string]any) map[string]any {
	for name, value := range change {
		inner, isObject := value.(map[string]any)
		old, wasObject := was[name].(map[string]any)
		switch {
		case value == nil:
			delete(was, name)
		case isObject && wasObject:
			was[name] = merged(old, inner)
		default:
			was[name] = value
		}
	}
	return was
}

func (w *world) remove(kind, key string) {
	resource, namespace, own := named(kind, key)
	// What is gone already, as by the scheduler, stays gone.
	_ = w.client.Tracker().Delete(resource, namespace, own)
}

func (w *world) pods() []*v1.Pod {
	list, err := w.client.Tracker().List(podsResource, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, "")
	check(err)
	found := []*v1.Pod{}
	for i := range list.(*v1.PodList).Items {
		found = append(found, &list.(*v1.PodList).Items[i])
	}
	sort.Slice(found, func(i, j int) bool { return keyOf(found[i]) < keyOf(found[j]) })
	return found
}

// --- events -------------------------------------------------------------------------------------------------------------

type recorder struct{ w *world }

func (r recorder) WithLogger(klog.Logger) events.EventRecorderLogger { return r }

func (r recorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...interface{}) {
	accessor, _ := meta.Accessor(regarding)
	text := fmt.Sprintf(note, args...)
	r.w.events = append(r.w.events, strings.Join([]string{keyOf(accessor), kind, reason, action, text}, " "))
}

// --- steps --------------------------------------------------------------------------------------------------------------

var codes = map[fwk.Code]string{
	fwk.Error: "Error", fwk.Unschedulable: "Unschedulable", fwk.UnschedulableAndUnresolvable: "UnschedulableAndUnresolvable",
	fwk.Pending: "Pending",
}

func (w *world) failed(pod *framework.QueuedPodInfo, status *fwk.Status) {
	found := &attempt{Pod: keyOf(pod.Pod), Codes: map[string]string{}}
	if n := len(w.attempts); n > 0 && w.held[found.Pod] && w.attempts[n-1].Pod == found.Pod {
		return
	}
	w.feasible = nil
	found.Message = status.Message()
	if fit, ok := status.AsError().(*framework.FitError); ok {
		for _, node := range w.nodes() {
			found.Codes[node] = codes[fit.Diagnosis.NodeToStatus.Get(node).Code()]
		}
		found.Plugins = sorted(append(fit.Diagnosis.UnschedulablePlugins.UnsortedList(), fit.Diagnosis.PendingPlugins.UnsortedList()...))
	}
	w.attempts = append(w.attempts, found)
}

func (w *world) nodes() []string {
	list, err := w.client.Tracker().List(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, schema.GroupVersionKind{Version: "v1", Kind: "Node"}, "")
	check(err)
	found := []string{}
	for _, node := range list.(*v1.NodeList).Items {
		found = append(found, node.Name)
	}
	return sorted(found)
}

func sorted(names []string) []string {
	sort.Strings(names)
	return names
}

// What the API and the queue look like.
func (w *world) look() map[string]any {
	found := map[string]any{}
	pods := map[string]map[string]any{}
	for _, pod := range w.pods() {
		told := map[string]any{}
		for _, condition := range pod.Status.Conditions {
			told[string(condition.Type)] = []string{string(condition.Status), condition.Reason, condition.Message}
		}
		if pod.Status.NominatedNodeName != "" {
			told["nominated"] = pod.Status.NominatedNodeName
		}
		if pod.DeletionTimestamp != nil {
			told["deleting"] = true
		}
		if pod.Spec.NodeName != "" {
			told["node"] = pod.Spec.NodeName
		}
		pods[keyOf(pod)] = told
	}
	found["pods"] = pods
	queued := map[string]string{}
	for name, list := range map[string][]*v1.Pod{
		"active": w.sched.SchedulingQueue.PodsInActiveQ(), "backoff": w.sched.SchedulingQueue.PodsInBackoffQ(),
		"unschedulable": w.sched.SchedulingQueue.UnschedulablePods(),
	} {
		for _, pod := range list {
			queued[keyOf(pod)] = name
		}
	}
	found["queue"] = queued
	list, err := w.client.Tracker().List(claimsResource, v1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), "")
	check(err)
	claims := map[string][]string{}
	for _, claim := range list.(*v1.PersistentVolumeClaimList).Items {
		claims[keyOf(&claim)] = []string{claim.Annotations["volume.kubernetes.io/selected-node"], claim.Spec.VolumeName}
	}
	found["claims"] = claims
	list, err = w.client.Tracker().List(devicesResource, resourceapi.SchemeGroupVersion.WithKind("ResourceClaim"), "")
	check(err)
	devices := map[string][][]string{}
	for _, claim := range list.(*resourceapi.ResourceClaimList).Items {
		allocated, reserved := []string{}, []string{}
		if claim.Status.Allocation != nil {
			for _, each := range claim.Status.Allocation.Devices.Results {
				allocated = append(allocated, each.Pool+"/"+each.Device)
			}
		}
		for _, each := range claim.Status.ReservedFor {
			reserved = append(reserved, each.Name)
		}
		devices[keyOf(&claim)] = [][]string{allocated, reserved}
	}
	found["devices"] = devices
	return found
}

func (w *world) play(each step) map[string]any {
	w.attempts, w.events = nil, nil
	switch each.Do {
	case "put", "try":
		if each.Hold || each.Do == "try" {
			var named metav1.PartialObjectMetadata
			check(json.Unmarshal(each.Object, &named))
			w.held[keyOf(&named)] = true
		}
		obj := w.put(each.Object)
		synctest.Wait()
		if each.Do == "try" {
			accessor, _ := meta.Accessor(obj)
			w.remove("pods", keyOf(accessor))
			synctest.Wait()
			delete(w.held, keyOf(accessor))
		}
	case "merge":
		w.merge(each.Kind, each.Key, each.Object)
		synctest.Wait()
		time.Sleep(time.Duration(each.Seconds * float64(time.Second)))
	case "delete":
		w.remove(each.Kind, each.Key)
	case "sleep":
		time.Sleep(time.Duration(each.Seconds * float64(time.Second)))
	case "look":
		return w.look()
	default:
		panic("no such step: " + each.Do)
	}
	synctest.Wait()
	answer := map[string]any{}
	if len(w.attempts) > 0 {
		answer["attempts"] = w.attempts
	}
	if len(w.events) > 0 {
		sort.Strings(w.events)
		answer["events"] = w.events
	}
	return answer
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func configured(raw json.RawMessage) *schedulerapi.KubeSchedulerConfiguration {
	if len(raw) == 0 {
		raw = json.RawMessage(`{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"KubeSchedulerConfiguration"}`)
	}
	obj, _, err := configscheme.Codecs.UniversalDecoder().Decode(raw, nil, nil)
	check(err)
	return obj.(*schedulerapi.KubeSchedulerConfiguration)
}

func played(asked script) []map[string]any {
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.TODO()))
	w := &world{ctx: ctx, client: fake.NewSimpleClientset(), version: 1000, held: map[string]bool{}}
	w.serve()
	config := configured(asked.Config)
	for i := range config.Profiles {
		plugins := config.Profiles[i].Plugins
		plugins.MultiPoint.Enabled = append(plugins.MultiPoint.Enabled, schedulerapi.Plugin{Name: "Witness", Weight: 1})
	}
	registry := frameworkruntime.Registry{
		"Witness": func(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			return &witness{w, handle}, nil
		},
	}
	informers := scheduler.NewInformerFactory(w.client, 0)
	percentage := int32(100)
	if config.PercentageOfNodesToScore != nil {
		percentage = *config.PercentageOfNodesToScore
	}
	sched, err := scheduler.New(ctx, w.client, informers, nil, func(string) events.EventRecorderLogger { return recorder{w} },
		scheduler.WithProfiles(config.Profiles...), scheduler.WithFrameworkOutOfTreeRegistry(registry),
		scheduler.WithPercentageOfNodesToScore(&percentage), scheduler.WithParallelism(1),
		scheduler.WithPodInitialBackoffSeconds(config.PodInitialBackoffSeconds),
		scheduler.WithPodMaxBackoffSeconds(config.PodMaxBackoffSeconds))
	check(err)
	w.sched = sched
	handle := sched.FailureHandler
	sched.FailureHandler = func(ctx context.Context, f framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status, nominating *fwk.NominatingInfo, start time.Time) {
		w.failed(pod, status)
		handle(ctx, f, pod, status, nominating, start)
	}
	informers.Start(ctx.Done())
	informers.WaitForCacheSync(ctx.Done())
	check(sched.WaitForHandlersSync(ctx))
	sched.SchedulingQueue.Run(klog.TODO())
	go wait.UntilWithContext(ctx, sched.ScheduleOne, 0)
	synctest.Wait()
	found := []map[string]any{}
	for _, each := range asked.Steps {
		found = append(found, w.play(each))
	}
	cancel()
	sched.SchedulingQueue.Close()
	sched.Profiles.Close()
	informers.Shutdown()
	// What waits for volumes or devices learns that it is over.
	time.Sleep(20 * time.Minute)
	synctest.Wait()
	return found
}

func TestAnswers(t *testing.T) {
	// The scheduler's debugger listens for signals; what passes them on must not be born in a bubble.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR2)
	utilruntime.ErrorHandlers = nil
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	lines, err := os.Open(os.Getenv("SCRIPTS_FILE"))
	check(err)
	out, err := os.Create(os.Getenv("ANSWERS_FILE"))
	check(err)
	defer out.Close()
	scanner := bufio.NewScanner(lines)
	scanner.Buffer(make([]byte, 1<<20), 1<<28)
	for scanner.Scan() {
		var asked script
		check(json.Unmarshal(scanner.Bytes(), &asked))
		var found []map[string]any
		synctest.Test(t, func(t *testing.T) { found = played(asked) })
		text, err := json.Marshal(map[string]any{"name": asked.Name, "answers": found})
		check(err)
		_, err = out.Write(append(text, '\n'))
		check(err)
	}
}
