package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
)

const group = "lab.example.com"

// kept holds in version 1 what only version 2 has a field for.
const kept = group + "/env"

// Status is the same in both versions.
type Status struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Replicas           int32              `json:"replicas"`
	Ready              int32              `json:"ready"`
	Selector           string             `json:"selector,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// Image is what version 1 writes as name:tag.
type Image struct {
	Name string `json:"name"`
	Tag  string `json:"tag,omitempty"`
}

// Spec is version 2's, in which a Fleet is stored.
type Spec struct {
	Replicas *int32            `json:"replicas,omitempty"`
	Image    Image             `json:"image"`
	Settings string            `json:"settings,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
}

// OldSpec is version 1's.
type OldSpec struct {
	Size     *int32 `json:"size,omitempty"`
	Image    string `json:"image"`
	Settings string `json:"settings,omitempty"`
}

// Fleet is a Deployment with settings: version 2, the hub of conversion.
type Fleet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              Spec   `json:"spec"`
	Status            Status `json:"status,omitzero"`
}

// FleetList is a list of version 2.
type FleetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Fleet `json:"items"`
}

// OldFleet is version 1.
type OldFleet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              OldSpec `json:"spec"`
	Status            Status  `json:"status,omitzero"`
}

// copied is a deep copy through JSON: these types have nothing that JSON loses.
func copied[T any](from *T) *T {
	told, err := json.Marshal(from)
	if err != nil {
		panic(err)
	}
	made := new(T)
	if err := json.Unmarshal(told, made); err != nil {
		panic(err)
	}
	return made
}

func (f *Fleet) DeepCopyObject() runtime.Object     { return copied(f) }
func (f *FleetList) DeepCopyObject() runtime.Object { return copied(f) }
func (f *OldFleet) DeepCopyObject() runtime.Object  { return copied(f) }

// Hub marks version 2.
func (*Fleet) Hub() {}

func (f *OldFleet) ConvertTo(hub conversion.Hub) error {
	to := hub.(*Fleet)
	to.ObjectMeta, to.Status = f.ObjectMeta, f.Status
	name, tag, _ := strings.Cut(f.Spec.Image, ":")
	to.Spec = Spec{Replicas: f.Spec.Size, Image: Image{name, tag}, Settings: f.Spec.Settings}
	if told, found := f.Annotations[kept]; found {
		if err := json.Unmarshal([]byte(told), &to.Spec.Env); err != nil {
			return fmt.Errorf("annotation %s: %w", kept, err)
		}
		to.Annotations = maps.Clone(f.Annotations)
		delete(to.Annotations, kept)
	}
	return nil
}

func (f *OldFleet) ConvertFrom(hub conversion.Hub) error {
	from := hub.(*Fleet)
	f.ObjectMeta, f.Status = from.ObjectMeta, from.Status
	image := from.Spec.Image.Name
	if from.Spec.Image.Tag != "" {
		image += ":" + from.Spec.Image.Tag
	}
	f.Spec = OldSpec{Size: from.Spec.Replicas, Image: image, Settings: from.Spec.Settings}
	if len(from.Spec.Env) > 0 {
		told, err := json.Marshal(from.Spec.Env)
		if err != nil {
			return err
		}
		f.Annotations = maps.Clone(from.Annotations)
		metav1.SetMetaDataAnnotation(&f.ObjectMeta, kept, string(told))
	}
	return nil
}

func register(scheme *runtime.Scheme) {
	version := func(name string) schema.GroupVersion { return schema.GroupVersion{Group: group, Version: name} }
	scheme.AddKnownTypeWithName(version("v2").WithKind("Fleet"), &Fleet{})
	scheme.AddKnownTypeWithName(version("v2").WithKind("FleetList"), &FleetList{})
	scheme.AddKnownTypeWithName(version("v1").WithKind("Fleet"), &OldFleet{})
	metav1.AddToGroupVersion(scheme, version("v1"))
	metav1.AddToGroupVersion(scheme, version("v2"))
}
