package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	owner      = "fleet-operator"
	finalizer  = group + "/farewell"
	force      = group + "/force"
	digest     = group + "/settings"
	bySettings = "spec.settings"
	applied    = "Applied"
)

type reconciler struct {
	client.Client
	recorder events.EventRecorder
}

func (r *reconciler) setUp(ctx context.Context, mgr ctrl.Manager) error {
	named := func(object client.Object) []string { return []string{object.(*Fleet).Spec.Settings} }
	if err := mgr.GetFieldIndexer().IndexField(ctx, &Fleet{}, bySettings, named); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&Fleet{}).
		Owns(&appsv1.Deployment{}).
		Owns(&corev1.ConfigMap{}, builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.users)).
		Complete(r)
}

// users are the Fleets whose settings a ConfigMap has.
func (r *reconciler) users(ctx context.Context, settings client.Object) []reconcile.Request {
	var fleets FleetList
	if err := r.List(ctx, &fleets, client.InNamespace(settings.GetNamespace()), client.MatchingFields{bySettings: settings.GetName()}); err != nil {
		panic(err)
	}
	found := []reconcile.Request{}
	for _, fleet := range fleets.Items {
		found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&fleet)})
	}
	return found
}

func (r *reconciler) Reconcile(ctx context.Context, asked ctrl.Request) (ctrl.Result, error) {
	fleet := &Fleet{}
	if err := r.Get(ctx, asked.NamespacedName, fleet); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !fleet.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.farewell(ctx, fleet)
	}
	if controllerutil.AddFinalizer(fleet, finalizer) {
		return ctrl.Result{}, r.Update(ctx, fleet)
	}
	condition, err := r.apply(ctx, fleet)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.summary(ctx, fleet); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.report(ctx, fleet, condition)
}

// apply makes the Deployment what the Fleet says. What others own is taken from them only where the Fleet says so.
func (r *reconciler) apply(ctx context.Context, fleet *Fleet) (metav1.Condition, error) {
	failed := metav1.Condition{Type: applied, Status: metav1.ConditionFalse}
	settings := ""
	if fleet.Spec.Settings != "" {
		var config corev1.ConfigMap
		key := client.ObjectKey{Namespace: fleet.Namespace, Name: fleet.Spec.Settings}
		if err := r.Get(ctx, key, &config); apierrors.IsNotFound(err) {
			failed.Reason, failed.Message = "NoSettings", err.Error()
			return failed, nil
		} else if err != nil {
			return failed, err
		}
		told, err := json.Marshal(config.Data)
		if err != nil {
			return failed, err
		}
		settings = fmt.Sprintf("%x", sha256.Sum256(told))[:16]
	}
	options := []client.ApplyOption{client.FieldOwner(owner)}
	if fleet.Annotations[force] != "" {
		options = append(options, client.ForceOwnership)
	}
	err := r.Apply(ctx, wanted(fleet, settings), options...)
	if apierrors.IsConflict(err) {
		failed.Reason, failed.Message = "Conflict", err.Error()
		return failed, nil
	}
	return metav1.Condition{Type: applied, Status: metav1.ConditionTrue, Reason: "Applied", Message: "as it says"}, err
}

func labels(fleet *Fleet) map[string]string { return map[string]string{"fleet": fleet.Name} }

func wanted(fleet *Fleet, settings string) *appsac.DeploymentApplyConfiguration {
	container := coreac.Container().WithName("ship").WithImage(fleet.Spec.Image.Name + ":" + fleet.Spec.Image.Tag)
	names := []string{}
	for name := range fleet.Spec.Env {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		container.WithEnv(coreac.EnvVar().WithName(name).WithValue(fleet.Spec.Env[name]))
	}
	template := coreac.PodTemplateSpec().WithLabels(labels(fleet)).WithAnnotations(map[string]string{digest: settings}).
		WithSpec(coreac.PodSpec().WithContainers(container))
	return appsac.Deployment(fleet.Name, fleet.Namespace).WithOwnerReferences(reference(fleet)).WithSpec(
		appsac.DeploymentSpec().WithReplicas(*fleet.Spec.Replicas).WithTemplate(template).
			WithSelector(metaac.LabelSelector().WithMatchLabels(labels(fleet))))
}

func reference(fleet *Fleet) *metaac.OwnerReferenceApplyConfiguration {
	return metaac.OwnerReference().WithAPIVersion(group + "/v2").WithKind("Fleet").WithName(fleet.Name).
		WithUID(fleet.UID).WithController(true).WithBlockOwnerDeletion(true)
}

// summary is a ConfigMap of the Fleet's own, kept up by reading and updating.
func (r *reconciler) summary(ctx context.Context, fleet *Fleet) error {
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: fleet.Name + "-summary"}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, config, func() error {
		config.Data = map[string]string{"image": fleet.Spec.Image.Name, "replicas": fmt.Sprint(*fleet.Spec.Replicas)}
		return controllerutil.SetControllerReference(fleet, config, r.Scheme())
	})
	return err
}

// report writes the status, and tells an event where the condition changes.
func (r *reconciler) report(ctx context.Context, fleet *Fleet, condition metav1.Condition) error {
	before := copied(&fleet.Status)
	var deployment appsv1.Deployment
	if err := r.Get(ctx, client.ObjectKeyFromObject(fleet), &deployment); client.IgnoreNotFound(err) != nil {
		return err
	}
	fleet.Status.ObservedGeneration = fleet.Generation
	fleet.Status.Replicas, fleet.Status.Ready = deployment.Status.Replicas, deployment.Status.ReadyReplicas
	fleet.Status.Selector = "fleet=" + fleet.Name
	condition.ObservedGeneration = fleet.Generation
	old := meta.FindStatusCondition(before.Conditions, applied)
	told := old == nil || old.Reason != condition.Reason || old.Message != condition.Message
	meta.SetStatusCondition(&fleet.Status.Conditions, condition)
	if equality.Semantic.DeepEqual(before, &fleet.Status) {
		return nil
	}
	if err := r.Status().Update(ctx, fleet); err != nil {
		return err
	}
	if told {
		kind := corev1.EventTypeNormal
		if condition.Status == metav1.ConditionFalse {
			kind = corev1.EventTypeWarning
		}
		r.recorder.Eventf(fleet, nil, kind, condition.Reason, "Apply", "%s", condition.Message)
	}
	return nil
}

// farewell notes the Fleet's name in a ConfigMap that all share, each its own key, and lets it go.
func (r *reconciler) farewell(ctx context.Context, fleet *Fleet) error {
	if !controllerutil.ContainsFinalizer(fleet, finalizer) {
		return nil
	}
	note := coreac.ConfigMap("farewells", fleet.Namespace).WithData(map[string]string{fleet.Name: "gone"})
	if err := r.Apply(ctx, note, client.FieldOwner(owner+"-"+fleet.Name)); err != nil {
		return err
	}
	before := copied(fleet)
	controllerutil.RemoveFinalizer(fleet, finalizer)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, fleet, patch); err != nil {
		return client.IgnoreNotFound(err)
	}
	r.recorder.Eventf(fleet, nil, corev1.EventTypeNormal, "Farewell", "Finalize", "%s is noted", fleet.Name)
	return nil
}
