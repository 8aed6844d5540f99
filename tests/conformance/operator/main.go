// An operator by controller-runtime, with what such operators ask of an API server: versions that a webhook converts,
// defaults and checks by webhooks, a leader, a cache with an index, a finalizer, owners, status, and server-side apply.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	most     = 10
	keep     = group + "/keep"
	standard = "latest"
)

type rules struct{}

func (rules) Default(_ context.Context, fleet *Fleet) error {
	if fleet.Spec.Replicas == nil {
		one := int32(1)
		fleet.Spec.Replicas = &one
	}
	if fleet.Spec.Image.Tag == "" {
		fleet.Spec.Image.Tag = standard
	}
	return nil
}

func (rules) ValidateCreate(_ context.Context, fleet *Fleet) (admission.Warnings, error) {
	if *fleet.Spec.Replicas > most {
		return nil, fmt.Errorf("a fleet has at most %d ships", most)
	}
	if fleet.Spec.Image.Tag == standard {
		return admission.Warnings{"the tag " + standard + " moves"}, nil
	}
	return nil, nil
}

func (r rules) ValidateUpdate(ctx context.Context, old, fleet *Fleet) (admission.Warnings, error) {
	if old.Spec.Settings != "" && fleet.Spec.Settings == "" {
		return nil, errors.New("settings stay once there are any")
	}
	return r.ValidateCreate(ctx, fleet)
}

func (rules) ValidateDelete(_ context.Context, fleet *Fleet) (admission.Warnings, error) {
	if fleet.Annotations[keep] != "" {
		return nil, fmt.Errorf("fleet %s is kept", fleet.Name)
	}
	return nil, nil
}

func run() error {
	port := flag.Int("port", 9443, "of the webhooks")
	certificates := flag.String("certificates", "", "folder with tls.crt and tls.key")
	lease := flag.Duration("lease", 15*time.Second, "how long a leader leads without renewing")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	renew, retry := *lease*2/3, *lease/10
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	register(scheme)
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:         scheme,
		LeaderElection: true, LeaderElectionID: owner, LeaderElectionNamespace: "default",
		LeaseDuration: lease, RenewDeadline: &renew, RetryPeriod: &retry,
		Metrics:       metrics.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: *port, CertDir: *certificates}),
	})
	if err != nil {
		return err
	}
	ctx := ctrl.SetupSignalHandler()
	reconciles := &reconciler{Client: mgr.GetClient(), recorder: mgr.GetEventRecorder(owner)}
	if err := reconciles.setUp(ctx, mgr); err != nil {
		return err
	}
	err = ctrl.NewWebhookManagedBy(mgr, &Fleet{}).WithDefaulter(rules{}).WithValidator(rules{}).Complete()
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
