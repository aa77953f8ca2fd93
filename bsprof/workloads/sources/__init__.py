"""Models of installed packages: timm, torchvision and Hugging Face."""
