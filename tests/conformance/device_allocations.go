// Reads cases, one JSON object a line, and writes each with what upstream's allocator answers with the features that are
// on by default in 1.36, and which devices each expression selects. Runs in a copy of
// k8s.io/dynamic-resource-allocation v0.36.2; see record_devices.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/dynamic-resource-allocation/structured/internal"
)

type allocated struct {
	Devices  []string                                 `json:"devices"`
	Shared   []string                                 `json:"shared"`
	Capacity map[string]map[string]resource.Quantity `json:"capacity"`
}

type question struct {
	Name      string                       `json:"name"`
	Node      *v1.Node                     `json:"node"`
	Claims    []*resourceapi.ResourceClaim `json:"claims"`
	Classes   classes                      `json:"classes"`
	Slices    []*resourceapi.ResourceSlice `json:"slices"`
	Allocated allocated                    `json:"allocated"`
}

type classes []*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) { return c, nil }

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: "resource.k8s.io", Resource: "deviceclass"}, name)
}

func deviceID(text string) structured.DeviceID {
	parts := strings.SplitN(text, "/", 3)
	return structured.MakeDeviceID(parts[0], parts[1], parts[2])
}

func state(a allocated) structured.AllocatedState {
	found := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, id := range a.Devices {
		found.AllocatedDevices.Insert(deviceID(id))
	}
	for _, id := range a.Shared {
		parts := strings.SplitN(id, "/", 4)
		var share *types.UID
		if len(parts) == 4 {
			uid := types.UID(parts[3])
			share = &uid
		}
		found.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(structured.MakeDeviceID(parts[0], parts[1], parts[2]), share))
	}
	for id, amounts := range a.Capacity {
		consumed := map[resourceapi.QualifiedName]resource.Quantity{}
		for name, amount := range amounts {
			consumed[resourceapi.QualifiedName(name)] = amount
		}
		found.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(deviceID(id), consumed))
	}
	return found
}

// selected says by expression and device whether it matches, or why it cannot be told.
func selected(q question, cache *cel.Cache) map[string]map[string]any {
	expressions := []string{}
	note := func(selectors []resourceapi.DeviceSelector) {
		for _, selector := range selectors {
			if selector.CEL != nil {
				expressions = append(expressions, selector.CEL.Expression)
			}
		}
	}
	for _, class := range q.Classes {
		note(class.Spec.Selectors)
	}
	for _, claim := range q.Claims {
		for _, request := range claim.Spec.Devices.Requests {
			if request.Exactly != nil {
				note(request.Exactly.Selectors)
			}
			for _, sub := range request.FirstAvailable {
				note(sub.Selectors)
			}
		}
	}
	found := map[string]map[string]any{}
	for _, expression := range expressions {
		compiled := cache.GetOrCompile(expression)
		if compiled.Error != nil {
			found[expression] = map[string]any{"": "CEL compile error: " + compiled.Error.Error()}
			continue
		}
		found[expression] = map[string]any{}
		for i, slice := range q.Slices {
			for _, device := range slice.Spec.Devices {
				id := fmt.Sprintf("%d/%s", i, device.Name)
				matches, _, err := compiled.DeviceMatches(context.Background(), cel.Device{
					Driver: slice.Spec.Driver, AllowMultipleAllocations: device.AllowMultipleAllocations,
					Attributes: device.Attributes, Capacity: device.Capacity,
				})
				if err != nil {
					found[expression][id] = "CEL runtime error: " + err.Error()
				} else {
					found[expression][id] = matches
				}
			}
		}
	}
	return found
}

func main() {
	features := structured.Features{
		AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true,
		PartitionableDevices: true, PrioritizedList: true,
	}
	in := bufio.NewReader(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) == 0 {
			return
		}
		var q question
		if err := json.Unmarshal(line, &q); err != nil {
			panic(fmt.Errorf("%w: %s", err, line))
		}
		cache := cel.NewCache(100, cel.Features{EnableConsumableCapacity: true})
		allocator, err := structured.NewAllocator(context.Background(), features, state(q.Allocated), q.Classes, q.Slices, cache)
		if err != nil {
			panic(err)
		}
		results, err := allocator.Allocate(context.Background(), q.Node, q.Claims)
		answer := map[string]any{"results": results, "calls": allocator.(internal.AllocatorExtended).GetStats().NumAllocateOneInvocations}
		if err != nil {
			answer["error"] = err.Error()
			answer["ofNode"] = errors.Is(err, internal.ErrFailedAllocationOnNode)
		}
		answer["selected"] = selected(q, cache)
		var asked map[string]any
		json.Unmarshal(line, &asked)
		asked["answer"] = answer
		if err := out.Encode(asked); err != nil {
			panic(err)
		}
	}
}
