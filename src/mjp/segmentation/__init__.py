"""Segmentation: segmentation_models_pytorch's UPerNet on a timm backbone, plain or pretrained with MJP."""
